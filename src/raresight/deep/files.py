"""A fitted classifier on disk: `deep.safetensors` with the weights and scales, `deep.json` with the rest.

`deep.json` also has the SHA-256 of the other file and of its own other entries, so that a changed or
truncated file is noticed. Nothing is a pickle.

Saved over another model, the weights take the name that the other's have not, of `deep.safetensors` and
`deep-2.safetensors`; then `deep.json`, which says whose weights count, is replaced; and then the other's
weights are removed. Each file appears whole or not at all, so that whenever a process is killed `deep.json`
and the weights that it names are those of one model. What it left besides is gone after the next save.
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

from ..common.atomic_files import remove_unfinished, write_json
from ..common.calibration import Calibrator
from ..common.json_values import digest_of, pack_parameters, pack_values, unpack_values
from ..losses import Loss, parse
from ..losses.for_classes import readable_text
from ..nn.tensor_files import read_tensors, write_tensors
from .encoding import TableEncoder
from .nets import NET_SIZES, NetPlan
from .trained_nets import TrainedNets

__all__ = ["DESCRIPTION_FILE", "files_of", "read_model", "write_model"]

DESCRIPTION_FILE = "deep.json"
# The first one is that of a model with a folder of its own.
WEIGHTS_FILES = ("deep.safetensors", "deep-2.safetensors")
FORMAT = "raresight.deep"
FORMAT_VERSION = 1
_HISTORY = "validation_history"


def write_model(model: Any, folder: str | os.PathLike[str]) -> None:
    """Write both files; an earlier model stays until the new one is there as a whole."""
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
    # As it will be read: tuples are lists then, and the digest is of the same values. Before anything is
    # written, since a model that cannot be must not take the place of one that was.
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
    for name in WEIGHTS_FILES:
        if name != weights:
            (place / name).unlink(missing_ok=True)


def files_of(folder: str | os.PathLike[str]) -> tuple[str, str]:
    """The names of the description and of the weights that it speaks of."""
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
        raise ValueError(f"{place / DESCRIPTION_FILE} lacks or garbles an entry: {error}") from None
    model.__dict__.update(attributes)


def _weights_in_use(place: Path) -> str | None:
    """The name of the weights that must stay until the description is replaced; None where there are none.

    Also of a description that does not count, as one of a newer raresight: what it needs is not known here.
    """
    try:
        described = json.loads((place / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        return _weights_name(described)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        return WEIGHTS_FILES[0]


def _weights_name(described: Mapping[str, Any]) -> str:
    name = described["weights"]
    if name not in WEIGHTS_FILES:
        raise ValueError(f"its weights cannot be in {name!r}, but in {' or '.join(WEIGHTS_FILES)}")
    return str(name)


def _read_files(place: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The description and the tensors of one model, also while another is saved in its place."""
    described = _read_description(place)
    while True:
        try:
            return described, _read_weights(place, described)
        except (OSError, ValueError):
            # They may have gone, or be another's, since the description was read: then it has changed, too.
            now = _read_description(place)
            if now == described:
                raise
            described = now


def _read_description(place: Path) -> dict[str, Any]:
    path = place / DESCRIPTION_FILE
    _need(path)
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
        raise ValueError(f"{place / DESCRIPTION_FILE} lacks or garbles an entry: {error}") from None
    _need(path)
    if described.get("sha256") != _sha256(path):
        raise ValueError(f"{path} is not the file that was saved: it was changed or truncated since")
    return read_tensors(path)


def _need(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: a model is a folder with {DESCRIPTION_FILE} and the weights that it "
            f"names, such as {WEIGHTS_FILES[0]}"
        )


def _is_readable(loss: Loss | str) -> bool:
    """Not where it was read from a file as a text alone, or is made of a function."""
    if isinstance(loss, str):
        return False
    try:
        readable_text(loss)
    except ValueError:
        return False
    return True


def _losses(described: Mapping[str, Any]) -> tuple[Loss | str, ...]:
    """The losses that were tried; of one that lost and cannot be read back, its text."""
    texts, unreadable = described["losses"], described["unreadable_losses"]
    return tuple(text if k in unreadable else parse(text) for k, text in enumerate(texts))


def _calibrator(described: Mapping[str, Any], outputs: int) -> Calibrator:
    found = Calibrator.from_dict(described["calibrator"])
    wanted = max(1, outputs - 1)
    if len(found.levels) != wanted:
        raise ValueError(f"the calibrator has {len(found.levels)} levels where the classes need {wanted}")
    return found


def _without_nan(scores: Mapping[str, float] | None) -> dict[str, float | None] | None:
    """The score of a loss whose nets failed is null: JSON has no NaN."""
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
