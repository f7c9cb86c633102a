"""Tables: read them, decide what their columns are, look at them, and split their rows.

The bundled sample of real card payments is `load_sample`.
"""

from raresight.tables.profile import ColumnProfile, Profile, make_profile
from raresight.tables.reader import Batches, TableWarning, fingerprint, open_batches, read_table
from raresight.tables.sample import load_sample, sample_path
from raresight.tables.schema import Column, Dropped, Schema, learn_schema, summarize_parts
from raresight.tables.splits import Data, Split, make_folds, read_data, split_rows

__all__ = [
    "Batches",
    "Column",
    "ColumnProfile",
    "Data",
    "Dropped",
    "Profile",
    "Schema",
    "Split",
    "TableWarning",
    "fingerprint",
    "learn_schema",
    "load_sample",
    "make_folds",
    "make_profile",
    "open_batches",
    "read_data",
    "read_table",
    "sample_path",
    "split_rows",
    "summarize_parts",
]
