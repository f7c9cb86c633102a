"""Raresight: classification of events that happen once in a thousand or once in a million."""

__version__ = "0.1.0"

__all__ = ["__version__"]
