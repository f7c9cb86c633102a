"""Data sets that the evidence is made on. None is shipped; a reader takes a path and checks what it finds."""

from raresight.data.card_fraud import CardFraud, read_card_fraud

__all__ = ["CardFraud", "read_card_fraud"]
