"""The registered losses, and losses as text: `tbl(alpha=0.8,C=0.5)`, on the command line and in files.

A loss is known once its class is registered. Every module of this package is loaded, so its losses are found
automatically. Other packages use the decorator `register`, or an entry point of the group `raresight.losses`
whose value is the class. Entry points are loaded when losses are listed or a name is unknown:

    [project.entry-points."raresight.losses"]
    mine = "my_package.losses:MyLoss"
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import pkgutil
import warnings
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from .parameters import collect_checks

if TYPE_CHECKING:
    from .contract import Loss
    from .ranking_loss import RankingLoss

__all__ = [
    "RESERVED_NAMES",
    "EntryPointWarning",
    "all_losses",
    "loss_kinds",
    "modules_of",
    "parse",
    "parse_any",
    "ranking_kinds",
    "register",
]

Kind = TypeVar("Kind", bound="type[Loss] | type[RankingLoss]")


class EntryPointWarning(UserWarning):
    """A loss of another package could not be loaded."""


_GROUP = "raresight.losses"
_KINDS: dict[str, type[Loss]] = {}
_RANKING_KINDS: dict[str, type[RankingLoss]] = {}
# What the torch functions and modules of all losses take beside the loss's own parameters.
RESERVED_NAMES = frozenset(
    ("self", "kind", "input", "target", "prior", "options", "weight", "pos_weight", "reduction")
    + ("ignore_index", "label_smoothing", "soft_targets", "multiclass")
)


def register(kind: Kind) -> Kind:
    """Make a loss known by its name: to `parse`, the command line, searches and `raresight.nn`.

    A class decorator, above `@dataclass(frozen=True)`.

    Raises:
        TypeError: The class is no frozen dataclass derived from a loss, or has no name.
        ValueError: Another loss has the name already, or a parameter has the name of an option.
    """
    from .contract import ComposedLoss, Loss

    if not _is_loss_class(kind):
        raise TypeError(
            f"only dataclasses derived from raresight.losses.Loss can be registered, got {kind!r}"
        )
    if not getattr(kind, "__dataclass_params__").frozen:  # noqa: B009
        raise TypeError(f"{kind.__name__} must be frozen: put @dataclass(frozen=True) below @register")
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
        raise TypeError(f"{kind.__name__} needs a class attribute name, one lower-case word, got {name!r}")
    for taken in (name, *kind.aliases):
        owner = _KINDS.get(taken) or _RANKING_KINDS.get(taken)
        if owner is not None and (owner.__module__, owner.__qualname__) != (
            kind.__module__,
            kind.__qualname__,
        ):
            raise ValueError(f"the name {taken!r} belongs to {owner.__module__}.{owner.__qualname__}")
    reserved = RESERVED_NAMES.intersection(inspect.signature(kind).parameters)
    if reserved and not issubclass(kind, ComposedLoss):  # which has no torch module of its own
        raise ValueError(
            f"{kind.__name__} has a parameter {min(reserved)!r}, a name that the torch modules of all losses "
            "use for an option: call it something else"
        )
    collect_checks(kind)
    if issubclass(kind, Loss):
        _KINDS[name] = kind
    else:
        _RANKING_KINDS[name] = kind
    return kind


def _is_loss_class(given: Any) -> bool:
    from .contract import Loss
    from .ranking_loss import RankingLoss

    is_kind = isinstance(given, type) and issubclass(given, (Loss, RankingLoss))
    return is_kind and dataclasses.is_dataclass(given)


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def loss_kinds(*, entry_points: bool = True) -> dict[str, type[Loss]]:
    """The classes of all losses by name, in the order in which tables show them.

    Without entry points only those that were registered so far: a search for them takes some milliseconds.
    """
    _load_own()
    if entry_points:
        _load_entry_points()
    return _in_order()


def ranking_kinds() -> dict[str, type[RankingLoss]]:
    """The classes of all ranking losses by name."""
    _load_own()
    _load_entry_points()
    return dict(sorted(_RANKING_KINDS.items()))


def all_losses() -> tuple[Loss, ...]:
    """One of every loss: the defaults, and an imbalance of 1 in 100 where a loss asks for one."""
    return tuple(kind.example() for kind in loss_kinds().values())


def parse(text: str) -> Loss:
    """The loss that `text` names; `str(loss)` is read back as an equal loss.

    Names without parentheses take the defaults. Compositions nest:
    `logitadjusted(focal(gamma=1.0),prior=0.01)`.

    >>> parse("tbl(alpha=0.7)")
    TBL(alpha=0.7, C=0.5)
    """
    from .contract import Loss

    result = parse_any(text)
    if not isinstance(result, Loss):
        raise ValueError(
            f"{text!r} is a ranking loss, which has a value for a whole batch alone: train a net by "
            "raresight.nn.RankingModule"
        )
    return result


def parse_any(text: str) -> Loss | RankingLoss:
    """As `parse`, ranking losses included.

    >>> parse_any("partialauc(max_fpr=0.05)")
    PartialAUC(max_fpr=0.05, margin=1.0, memory=0.0)
    """
    from .contract import Loss
    from .ranking_loss import RankingLoss

    if not isinstance(text, str):
        raise TypeError(f"parse takes a text such as 'tbl(alpha=0.8,C=0.5)', got {text!r}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(
            f"cannot read {text!r} as a loss; write for example 'tbl(alpha=0.8,C=0.5)'"
        ) from None
    result = _read(tree, text)
    if not isinstance(result, (Loss, RankingLoss)):
        raise ValueError(f"{text!r} is not a loss; known are {_known()}")
    return result


def modules_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The modules of other packages that define these losses: another process has to import them."""
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    kinds = [_KINDS.get(node.id.lower()) for node in nodes if isinstance(node, ast.Name)]
    modules = {kind.__module__ for kind in kinds if kind is not None}
    return tuple(sorted(name for name in modules if not name.startswith(f"{__package__}.")))


def _read(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Name):
        # NaN is read as a number, so that the parameter's own check refuses it by name.
        number = node.id.lower() in ("inf", "nan")
        return float(node.id) if number else _build(node.id, [], {}, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        arguments = [_read(item, text) for item in node.args]
        keywords = {item.arg: _read(item.value, text) for item in node.keywords if item.arg}
        if len(keywords) != len(node.keywords):
            raise ValueError(f"cannot read {text!r}: ** is not understood")
        return _build(node.func.id, arguments, keywords, text)
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(_read(item, text) for item in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        number = _read(node.operand, text)
        if isinstance(number, (int, float)):
            return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    raise ValueError(f"cannot read {ast.unparse(node)!r} in {text!r}: expected a number, a list or a loss")


def _build(name: str, arguments: list[Any], keywords: dict[str, Any], text: str) -> Loss | RankingLoss:
    kind = _find(name, text)
    signature = inspect.signature(kind)
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise ValueError(f"{text!r}: {error}; {name.lower()} takes {_takes(signature)}") from None
    return kind(*arguments, **keywords)


def _find(name: str, text: str) -> type[Loss] | type[RankingLoss]:
    _load_own()
    kind = _KINDS.get(name.lower()) or _RANKING_KINDS.get(name.lower())
    if kind is None:
        _load_entry_points()
        kind = _KINDS.get(name.lower()) or _RANKING_KINDS.get(name.lower())
    if kind is None:
        # A name from a paper, or a typing error.
        meant = [own.name for own in _KINDS.values() if name.lower() in own.aliases]
        near = meant or difflib.get_close_matches(name.lower(), _KINDS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"unknown loss {name!r} in {text!r}{hint}; known are {_known()}")
    return kind


def _takes(signature: inspect.Signature) -> str:
    described = []
    for parameter in signature.parameters.values():
        needed = parameter.default is inspect.Parameter.empty
        described.append(parameter.name if needed else f"{parameter.name}={parameter.default}")
    return ", ".join(described) if described else "no parameters"


def _known() -> str:
    return ", ".join(_in_order())


def _in_order() -> dict[str, type[Loss]]:
    return dict(sorted(_KINDS.items(), key=lambda pair: (pair[1].place, pair[0])))


@lru_cache(maxsize=1)
def _load_own() -> None:
    """Import every module of this package, so that a new loss is a new file and nothing else."""
    package = import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        # Those of array libraries wait until somebody has such arrays.
        if not module.name.startswith("_"):
            import_module(f"{__package__}.{module.name}")


@lru_cache(maxsize=1)
def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group=_GROUP):
        try:
            register(point.load())
        except Exception as error:
            # Somebody else's package: the losses of all others stay usable.
            warnings.warn(
                f"the loss {point.name!r} of the entry point {point.value} cannot be loaded: "
                f"{type(error).__name__}: {error}",
                EntryPointWarning,
                stacklevel=2,
            )
