"""The nets of `DeepClassifier` by name, and the plan from which a stack of them is built."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..common.checks import check_range, check_whole
from ..nn.nets import MLP, ReplicaNet, TabM, TabNet

__all__ = ["NET_SIZES", "NetPlan", "plan_net"]

# Default sizes. TabM's authors take a width of 512 and 32 members. On one CPU core an epoch over 37,000 rows
# of 29 columns takes 5 s with these sizes. With a width of 256 and 16 members it took 35 s.
NET_SIZES: dict[str, dict[str, float]] = {
    "tabm": {"width": 128, "blocks": 3, "members": 8, "dropout": 0.1},
    "tabnet": {"width": 8, "steps": 3},
    "mlp": {"width": 256, "blocks": 2},
}
# The options of each net that its sizes set.
_OPTIONS_OF: dict[str, dict[str, tuple[str, ...]]] = {
    "tabm": {size: (size,) for size in NET_SIZES["tabm"]},
    "tabnet": {"width": ("decision_width", "attention_width"), "steps": ("steps",)},
    "mlp": {"width": ("hidden",), "blocks": ("hidden",)},
}
_KINDS: dict[str, Any] = {"tabm": TabM, "tabnet": TabNet, "mlp": MLP}
# Parameters of a net that follow from the table, the classes and the losses.
_NOT_OPTIONS = ("features", "outputs", "replicas", "seeds")


@dataclass(frozen=True)
class NetPlan:
    """An architecture with its numbers of inputs and outputs.

    >>> plan = plan_net("mlp", {"width": 16}, {}, features=4, outputs=1)
    >>> plan.build(replicas=2, seeds=(0, 1)).hidden
    (16, 16)
    """

    name: str
    features: int
    outputs: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self, replicas: int, seeds: tuple[int, ...]) -> ReplicaNet:
        """Build a stack of nets with their first weights."""
        make = partial(_KINDS[self.name], self.features, outputs=self.outputs, **self.options)
        net: ReplicaNet = make(replicas=replicas, seeds=seeds)
        return net

    def check_batch(self, rows: int) -> None:
        """Refuse batches of a single row for nets with batch norm, which would make that row zero."""
        has_norm = self.name == "tabnet" or bool(self.options.get("batch_norm"))
        if has_norm and rows < 2:
            raise ValueError(
                f"batch_size is {rows}, but {self.name} normalises over the rows of a batch here (batch "
                "norm): set batch_size to 2 or more"
            )


def plan_net(
    name: str, sizes: Mapping[str, Any], extra: Mapping[str, Any], *, features: int, outputs: int
) -> NetPlan:
    """Return the plan of a net by name. A size of None means the default of the net.

    Raises:
        ValueError: The net is unknown, does not have a size or option that is given, or gets one twice.
    """
    if name not in NET_SIZES:
        raise ValueError(f"net must be one of {', '.join(NET_SIZES)}, got {name!r}")
    known = NET_SIZES[name]
    for size, value in sizes.items():
        if value is not None and size not in known:
            raise ValueError(f"{name} has no {size}: its sizes are {', '.join(known)}")
    chosen: dict[str, Any] = {
        size: default if sizes.get(size) is None else sizes[size] for size, default in known.items()
    }
    for size, value in chosen.items():
        if size == "dropout":
            check_range(value, size, least=0, below=1)
        else:
            # A whole number may come as a float, such as 8.0 from the settings of a search.
            check_whole(int(value) if isinstance(value, float) and value.is_integer() else value, size)
    options_known = [key for key in inspect.signature(_KINDS[name]).parameters if key not in _NOT_OPTIONS]
    for option in extra:
        if option not in options_known:
            raise ValueError(
                f"net_options names {option!r}, which {name} does not have: its options are "
                f"{', '.join(options_known)}"
            )
    _check_given_once(name, sizes, extra)
    width = int(chosen["width"])
    if name == "mlp":
        options: dict[str, Any] = {"hidden": [width] * int(chosen["blocks"])}
    elif name == "tabnet":
        options = {"decision_width": width, "attention_width": width, "steps": int(chosen["steps"])}
    else:
        options = {"dropout": float(chosen["dropout"])}
        options |= {size: int(chosen[size]) for size in ("width", "blocks", "members")}
    return NetPlan(name, features, outputs, {**options, **extra})


def _check_given_once(name: str, sizes: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Refuse an option that a size of the estimator sets as well, instead of ignoring one of the two."""
    for size, options in _OPTIONS_OF[name].items():
        twice = [option for option in options if option in extra]
        if sizes.get(size) is not None and twice:
            raise ValueError(
                f"net_options gives {twice[0]!r}, which {size}={sizes[size]!r} sets as well for {name}: "
                "leave one of them out"
            )
