"""What `raresight analyze` reads: losses named on the command line, and a file of scores."""

from __future__ import annotations

import csv
import importlib
import os
import sys
from pathlib import Path

from ..losses import Loss, from_callable, parse
from ..theory import EmpiricalExperiment

__all__ = ["find_loss", "read_scores"]


def find_loss(text: str) -> Loss:
    """A loss from its text, or `module:name` of a Loss or of a function fn(z, y) of torch tensors."""
    if ":" not in text:
        return parse(text)
    module_name, _, name = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        raise ValueError(f"cannot import {module_name!r} for {text!r}: {error}") from error
    except AttributeError:
        raise ValueError(f"module {module_name!r} has no {name!r}") from None
    if isinstance(found, Loss):
        return found
    if callable(found):
        try:
            return from_callable(found, name=name)
        except ImportError:
            raise
        except Exception as error:  # whatever a user's function may raise
            raise ValueError(
                f"{text!r} failed on a tensor of scores: {type(error).__name__}: {error}"
            ) from error
    raise ValueError(f"{text!r} is neither a loss nor a function fn(z, y), but {type(found).__name__}")


def read_scores(path: Path, target: str, score: str) -> EmpiricalExperiment:
    """Labels and held-out scores from a CSV file with a header."""
    try:
        return _read_scores(path, target, score)
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is no text in UTF-8: scores are read from a CSV file with a header, such as raresight "
            "score writes where the name after --out ends in .csv"
        ) from None


def _read_scores(path: Path, target: str, score: str) -> EmpiricalExperiment:
    labels: list[float] = []
    scores: list[float] = []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        for column in (target, score):
            if column not in columns:
                raise ValueError(f"{path} has no column {column!r}; it has {', '.join(columns) or 'none'}")
        for row in reader:
            try:
                labels.append(float(row[target]))
                scores.append(float(row[score]))
            except (TypeError, ValueError):
                raise ValueError(
                    f"{path}, line {reader.line_num}: {target}={row[target]!r} and {score}={row[score]!r} "
                    "must be numbers"
                ) from None
    return EmpiricalExperiment(labels, scores)
