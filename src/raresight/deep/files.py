"""A fitted classifier on disk: `deep.safetensors` holds weights and scales, `deep.json` everything else.

`deep.json` also holds the SHA-256 of the weights file and of its own other entries, so that a changed or
truncated file is noticed. Nothing is a pickle.

A model can be saved over another one. There are two names for the weights, `deep.safetensors` and
`deep-2.safetensors`:

1. The new weights are written under the name that is not in use.
2. `deep.json`, which names the weights that count, is replaced.
3. The old weights are removed.

Each file appears complete or not at all. So after a kill at any moment `deep.json` and the weights that it
names belong to one model. The next save removes what the killed one left behind.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..common.atomic_files import regular_file, remove_unfinished, write_json
from ..common.calibration import Calibrator
from ..common.json_values import digest_of, pack_parameters, pack_values, unpack_values
from ..losses import Loss, parse
from ..losses.for_classes import readable_text
from ..nn.tensor_files import read_tensors, write_tensors
from .encoding import TableEncoder
from .net_plans import NET_SIZES, NetPlan
from .trained_nets import TrainedNets

__all__ = ["DESCRIPTION_FILE", "files_of", "read_model", "write_model"]

DESCRIPTION_FILE = "deep.json"
# A model in a new folder has the first one.
WEIGHTS_FILES = ("deep.safetensors", "deep-2.safetensors")
FORMAT = "raresight.deep"
FORMAT_VERSION = 1
_HISTORY = "validation_history"


def write_model(model: Any, folder: str | os.PathLike[str]) -> None:
    """Write both files; an earlier model stays valid until the new one is complete."""
    nets: TrainedNets = model.nets_
    names = getattr(model, "feature_names_in_", None)
    history = model.validation_history_
    described = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "torch_version": str(torch.__version__),
        "loss": readable_text(model.loss_),
        "losses": [str(loss) for loss in model.losses_],
        "unreadable_losses": [k for k, loss in enumerate(model.losses_) if not _is_readable(loss)],
        "classes": pack_values(model.classes_, "classes"),
        "net": {
            "name": nets.plan.name,
            "features": nets.plan.features,
            "outputs": nets.plan.outputs,
            "options": pack_parameters(dict(nets.plan.options)),
        },
        "seeds": list(nets.seeds),
        "columns": model._encoder.describe(),
        "feature_names": None if names is None else [str(name) for name in names],
        "feature_importances": model.feature_importances_.tolist(),
        "calibrator": model.calibrator_.to_dict(),
        "validation_scores": _without_nan(model.validation_scores_),
        "best_epochs": list(model.best_epochs_),
        "n_epochs": model.n_epochs_,
        "parameters": _pack(model.get_params(deep=False)),
    }
    arrays = {f"net.{name}": stack for name, stack in nets.weights.items()}
    arrays |= model._encoder.arrays()
    if history is not None:
        arrays[_HISTORY] = history
    place = Path(folder)
    if place.is_file():
        raise NotADirectoryError(f"a model is saved as a folder, but {folder} is a file")
    # Through JSON and back before anything is written. A model that cannot be saved must not replace an
    # earlier one. And the digest must be of the values that will be read, where tuples have become lists.
    described = json.loads(json.dumps(described, allow_nan=False))
    place.mkdir(parents=True, exist_ok=True)
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    in_use = _weights_in_use(place)
    weights = next(name for name in WEIGHTS_FILES if name != in_use)
    remove_unfinished(place)
    write_tensors(place / weights, tensors, metadata={"format": FORMAT})
    described |= {"weights": weights, "sha256": _sha256(place / weights)}
    described["description_sha256"] = digest_of(described)
    write_json(place / DESCRIPTION_FILE, described)
    # Only now: until the description was replaced, these weights were those of the valid model.
    for name in WEIGHTS_FILES:
        if name != weights:
            (place / name).unlink(missing_ok=True)


def files_of(folder: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the names of the description and of the weights that it names."""
    return DESCRIPTION_FILE, _weights_name(_read_description(Path(folder)))


def read_model(model: Any, folder: str | os.PathLike[str]) -> None:
    """Set the parameters and attributes that `write_model` wrote."""
    place = Path(folder)
    described, tensors = _read_files(place)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    try:
        model.set_params(**_unpack(described["parameters"]))
        loss = parse(described["loss"])
        net = described["net"]
        if net["name"] not in NET_SIZES:
            raise ValueError(f"the net {net['name']!r} is unknown")
        plan = NetPlan(net["name"], net["features"], net["outputs"], net["options"])
        prefix = "net."
        weights = {
            name.removeprefix(prefix): stack for name, stack in arrays.items() if name.startswith(prefix)
        }
        names, scores = described["feature_names"], described["validation_scores"]
        encoder = TableEncoder.restore(described["columns"], arrays)
        attributes: dict[str, Any] = {
            "classes_": unpack_values(described["classes"]),
            "loss_": loss,
            "losses_": _losses(described),
            "validation_scores_": None if scores is None else {t: _number(s) for t, s in scores.items()},
            "best_epochs_": tuple(described["best_epochs"]),
            "n_epochs_": described["n_epochs"],
            "validation_history_": arrays.get(_HISTORY),
            "calibrator_": _calibrator(described, plan.outputs),
            "feature_importances_": np.array(described["feature_importances"]),
            "n_features_in_": len(encoder.columns),
            "nets_": TrainedNets(plan, loss, tuple(described["seeds"]), weights),
            "_encoder": encoder,
        }
        if names is not None:
            attributes["feature_names_in_"] = np.array(names, dtype=object)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{place / DESCRIPTION_FILE} lacks an entry or has a wrong one: {error}") from None
    model.__dict__.update(attributes)


def _weights_in_use(place: Path) -> str | None:
    """Return the name of the weights that the present description names; None without a description."""
    try:
        described = json.loads(regular_file(place / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        return _weights_name(described)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        # An unreadable description, perhaps of a newer raresight: keep the usual weights until it is
        # replaced.
        return WEIGHTS_FILES[0]


def _weights_name(described: Mapping[str, Any]) -> str:
    name = described["weights"]
    if name not in WEIGHTS_FILES:
        raise ValueError(f"its weights cannot be in {name!r}, but in {' or '.join(WEIGHTS_FILES)}")
    return str(name)


def _read_files(place: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the description and the tensors of one model, even while another is saved over it."""
    described = _read_description(place)
    while True:
        try:
            return described, _read_weights(place, described)
        except (OSError, ValueError):
            # A save may have removed or replaced the weights since the description was read. Then the
            # description has changed as well, and reading starts again. Otherwise the error is real.
            now = _read_description(place)
            if now == described:
                raise
            described = now


def _read_description(place: Path) -> dict[str, Any]:
    path = place / DESCRIPTION_FILE
    _require_file(path)
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON, it is damaged: {error}") from None
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise ValueError(f"{path} does not describe a model of raresight.deep")
    version = described.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise ValueError(f"{path} has format version {version!r}, this raresight reads {FORMAT_VERSION}")
    if described.get("description_sha256") != digest_of(described):
        raise ValueError(f"{path} is not the file that was saved: it was changed since")
    return described


def _read_weights(place: Path, described: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    try:
        path = place / _weights_name(described)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{place / DESCRIPTION_FILE} lacks an entry or has a wrong one: {error}") from None
    _require_file(path)
    if described.get("sha256") != _sha256(path):
        raise ValueError(f"{path} is not the file that was saved: it was changed or truncated since")
    return read_tensors(path)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: a model is a folder with {DESCRIPTION_FILE} and the weights that it "
            f"names, such as {WEIGHTS_FILES[0]}"
        )


def _is_readable(loss: Loss | str) -> bool:
    """Return whether the loss can be read back from its text."""
    if isinstance(loss, str):  # it could not be read back when this model was loaded
        return False
    try:
        readable_text(loss)
    except ValueError:
        return False
    return True


def _losses(described: Mapping[str, Any]) -> tuple[Loss | str, ...]:
    """Return the losses that were tried, as a text where a loss cannot be read back."""
    texts, unreadable = described["losses"], described["unreadable_losses"]
    return tuple(text if k in unreadable else parse(text) for k, text in enumerate(texts))


def _calibrator(described: Mapping[str, Any], outputs: int) -> Calibrator:
    found = Calibrator.from_dict(described["calibrator"])
    wanted = max(1, outputs - 1)
    if len(found.levels) != wanted:
        raise ValueError(f"the calibrator has {len(found.levels)} levels where the classes need {wanted}")
    return found


def _without_nan(scores: Mapping[str, float] | None) -> dict[str, float | None] | None:
    """Replace the NaN of a loss whose nets failed by null, since JSON has no NaN."""
    if scores is None:
        return None
    return {text: score if math.isfinite(score) else None for text, score in scores.items()}


def _number(score: float | None) -> float:
    return float("nan") if score is None else float(score)


def _pack(parameters: dict[str, Any]) -> dict[str, Any]:
    loss, weights = parameters["loss"], parameters["class_weight"]
    given = list(loss) if isinstance(loss, (list, tuple)) else loss
    several = isinstance(given, list)
    texts = [one if isinstance(one, str) else str(one) for one in (given if several else [given])]
    pairs = weights
    if isinstance(weights, Mapping):
        # Classes may be numbers, which JSON would turn into text as keys.
        pairs = {
            "classes": pack_values(list(weights), "class_weight"),
            "weights": [float(weight) for weight in weights.values()],
        }
    options = parameters["net_options"]
    plain = {
        **parameters,
        "loss": texts if several else texts[0],
        "class_weight": pairs,
        "net_options": None if options is None else dict(options),
    }
    return pack_parameters(plain)


def _unpack(parameters: Mapping[str, Any]) -> dict[str, Any]:
    weights = parameters["class_weight"]
    if isinstance(weights, Mapping):
        weights = dict(zip(unpack_values(weights["classes"]).tolist(), weights["weights"]))
    return {**parameters, "class_weight": weights}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
