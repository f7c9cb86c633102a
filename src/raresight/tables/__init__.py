"""Tables: read them, decide what their columns are, look at them, and split their rows.

The bundled sample of real card payments is `load_sample`.
"""

from raresight.tables.looks import ColumnLook, Profile, look
from raresight.tables.sample import load_sample, sample_path
from raresight.tables.schema import Column, Dropped, Schema, learn_schema
from raresight.tables.splits import Split, make_folds, split_rows
from raresight.tables.tables import Batches, TableWarning, fingerprint, open_batches, read_table

__all__ = [
    "Batches",
    "Column",
    "ColumnLook",
    "Dropped",
    "Profile",
    "Schema",
    "Split",
    "TableWarning",
    "fingerprint",
    "learn_schema",
    "load_sample",
    "look",
    "make_folds",
    "open_batches",
    "read_table",
    "sample_path",
    "split_rows",
]
