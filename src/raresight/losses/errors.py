"""The warnings that losses raise."""

__all__ = ["NonConvexLossWarning"]


class NonConvexLossWarning(UserWarning):
    """The loss is usable but not convex in the score, so a solver may stop at a local minimum."""
