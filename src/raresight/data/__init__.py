"""Tables: read them, decide what their columns are, look at them, and split their rows. Images, made rare.

The bundled sample of real card payments is `load_sample`; the evidence of the paper is made on tables that
users bring (`read_card_fraud`).
"""

from raresight.data.card_fraud import CardFraud, read_card_fraud, save_card_fraud
from raresight.data.images import Images, ImageSet, read_cifar10, read_cifar100, read_tiny_imagenet
from raresight.data.imbalance import Imbalanced
from raresight.data.looks import ColumnLook, Profile, look
from raresight.data.sample import load_sample, sample_path
from raresight.data.schema import Column, Dropped, Schema, learn_schema
from raresight.data.splits import Split, make_folds, split_rows
from raresight.data.tables import Batches, TableWarning, fingerprint, open_batches, read_table

__all__ = [
    "Batches",
    "CardFraud",
    "Column",
    "ColumnLook",
    "Dropped",
    "ImageSet",
    "Images",
    "Imbalanced",
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
    "read_card_fraud",
    "read_cifar10",
    "read_cifar100",
    "read_table",
    "read_tiny_imagenet",
    "sample_path",
    "save_card_fraud",
    "split_rows",
]
