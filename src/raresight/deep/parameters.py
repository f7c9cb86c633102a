"""The parameters of `DeepClassifier`: checks, defaults, device and threads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
import torch

from ..common.calibration import check_calibration
from ..common.checks import check_range, check_whole

__all__ = [
    "batch_size_for",
    "check_parameters",
    "default_average",
    "default_epochs",
    "default_rate",
    "device_for",
    "torch_threads",
]

# The default batch size aims at this many steps per epoch, within these bounds.
_STEPS = 200
_SMALLEST, _LARGEST = 128, 4096

# The default of max_epochs, where the best epoch is chosen and where the last one is kept.
_EPOCHS_IF_CHOSEN, _EPOCHS_IF_FIXED = 100, {"mlp": 5, "tabm": 10, "tabnet": 10}

# The default of learning_rate. That of TabNet was chosen with benchmarks/measure_options.py.
_RATES = {"mlp": 1e-3, "tabm": 1e-3, "tabnet": 2e-2}

_PRECISIONS = ("float32", "float64")


def check_parameters(estimator: Any) -> None:
    """Raise an error for a wrong parameter; `plan_net` checks those of the net."""
    check_whole(estimator.patience, "patience")
    check_whole(estimator.n_seeds, "n_seeds")
    if estimator.max_epochs is not None:
        check_whole(estimator.max_epochs, "max_epochs")
    if not _is_auto(estimator.batch_size):
        check_whole(estimator.batch_size, "batch_size")
    if estimator.n_jobs is not None and not _means_all_cores(estimator.n_jobs):
        check_whole(estimator.n_jobs, "n_jobs")
    if estimator.learning_rate is not None:
        check_range(estimator.learning_rate, "learning_rate", above=0)
    check_range(estimator.weight_decay, "weight_decay", least=0)
    check_range(estimator.warmup_epochs, "warmup_epochs", least=0)
    if estimator.average_epochs is not None:
        check_range(estimator.average_epochs, "average_epochs", least=0)
    check_range(estimator.validation_fraction, "validation_fraction", above=0, below=1)
    check_range(estimator.max_fpr, "max_fpr", above=0, most=1)
    stops = estimator.early_stopping
    if not _is_auto(stops) and not isinstance(stops, (bool, np.bool_)):
        raise ValueError(f"early_stopping must be 'auto', True or False, got {estimator.early_stopping!r}")
    if not isinstance(estimator.refit, (bool, np.bool_)):
        raise ValueError(f"refit must be True or False, got {estimator.refit!r}")
    if not _is_auto(estimator.verbose) and not isinstance(estimator.verbose, (bool, np.bool_)):
        raise ValueError(f"verbose must be 'auto', True or False, got {estimator.verbose!r}")
    if not isinstance(estimator.precision, str) or estimator.precision not in _PRECISIONS:
        raise ValueError(f"precision must be 'float32' or 'float64', got {estimator.precision!r}")
    check_calibration(estimator.calibration)
    options = estimator.net_options
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"net_options must be a mapping of options by name or None, got {options!r}")
    device_for(estimator.device)


def batch_size_for(n_rows: int) -> int:
    """Return the default batch size: about 200 steps per epoch, between 128 and 4096 rows.

    >>> [batch_size_for(n) for n in (1_000, 100_000, 10_000_000)]
    [128, 500, 4096]
    """
    # On a CPU a step with 100 rows takes nearly as long as one with 1000. A million rows in batches of 128
    # take 8,000 such steps per epoch. Nets learn little more from them than from 244 steps of 4096 rows.
    # Larger batches need more epochs for the same number of steps.
    return min(_LARGEST, max(_SMALLEST, n_rows // _STEPS))


def default_epochs(net: str, stops_early: bool) -> int:
    """Return the default of `max_epochs`: many where the best epoch is chosen, few where the last is kept.

    >>> default_epochs("mlp", True), default_epochs("mlp", False), default_epochs("tabm", False)
    (100, 5, 10)
    """
    # The few were chosen on simulated tables of one kind, with 15 to 34 positives: too few to hold some out.
    # Log-loss on new rows, as a multiple of that of the constant class share:
    # - MLP, three tables per size. After 5 epochs: 0.82 with 400 rows, 0.81 with 2,000, 0.91 with 8,000 and
    #   1.07 with 30,000. After 100 epochs: 2.2, 2.6 and 3.6 (30,000 rows were not tried).
    # - TabM, two tables per size. After 10 epochs: 0.87, 0.73 and 0.81.
    # - TabNet at its default rate, on twelve tables of five kinds with 400 to 8,000 rows and 19 to 600
    #   positives. On average 0.91 after 5 epochs, 0.88 after 10 and 0.94 after 20.
    return _EPOCHS_IF_CHOSEN if stops_early else _EPOCHS_IF_FIXED[net]


def default_rate(net: str) -> float:
    """Return the default of `learning_rate`."""
    return _RATES[net]


def default_average(stops_early: bool) -> float:
    """Return the default of `average_epochs`: 2 where training may end at any epoch."""
    # Where the number of epochs is known beforehand, the last ones have a smaller learning rate instead.
    return 2.0 if stops_early else 0.0


def device_for(name: Any) -> str:
    """Return the device with this name; `"auto"` is a GPU if PyTorch finds one."""
    if not isinstance(name, str):
        raise TypeError(f"device must be 'auto', 'cpu' or 'cuda', got {name!r}")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {name!r}")
    if name.startswith("cpu") and name not in ("cpu", "cpu:0"):
        raise ValueError(f"device is {name!r}, but there is one CPU: take 'cpu'")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device is {name!r}, but PyTorch sees no GPU here: take 'auto' or 'cpu'")
    return name


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Run PyTorch on `count` CPU threads; -1 is one per core, None changes nothing."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(_cores() if _means_all_cores(count) else int(count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cores() -> int:
    # Where the system reports it, only the cores that this process may use.
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


def _means_all_cores(n_jobs: Any) -> bool:
    return isinstance(n_jobs, Integral) and n_jobs == -1


def _is_auto(value: Any) -> bool:
    # `==` compares an array element by element, which has no truth value.
    return isinstance(value, str) and value == "auto"
