"""The page that `raresight fit` leaves behind: one HTML file that opens from disk."""

from .page import write_fit_page

__all__ = ["write_fit_page"]
