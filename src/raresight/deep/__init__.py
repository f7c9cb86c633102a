"""Deep nets for tables as a scikit-learn estimator: any loss, calibrated probabilities, files without pickle.

Needs PyTorch: pip install 'raresight[torch]', and for TabM 'raresight[tabm]'.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("raresight.deep needs PyTorch: pip install 'raresight[torch]'") from error

from .classifier import DeepClassifier

__all__ = ["DeepClassifier"]
