"""Read and write weights as safetensors files, atomically."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from ..common.atomic_files import write_file

__all__ = ["need_safetensors", "read_tensors", "tensor_metadata", "write_tensors"]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str]) -> None:
    """Write tensors as a safetensors file, which replaces an earlier one."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Not by safetensors' `save_file`, which leaves a temporary file of its own when it is killed.
    write_file(path, _safetensors("torch").save(content, dict(metadata)))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, on the CPU."""
    load_file = _safetensors("torch").load_file
    _check_exists(path)
    try:
        tensors: dict[str, Tensor] = load_file(str(path))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise _damaged(path, error) from None
    return tensors


def tensor_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file."""
    safe_open = _safetensors().safe_open
    _check_exists(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            return dict(file.metadata() or {})
    except FileNotFoundError:
        raise
    except Exception as error:
        raise _damaged(path, error) from None


def need_safetensors() -> None:
    """Raise an ImportError that names the extra to install if safetensors is missing."""
    _safetensors("torch")


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} cannot be read as safetensors, it is damaged: {error}")


def _safetensors(part: str = "") -> Any:
    try:
        return import_module(f"safetensors.{part}" if part else "safetensors")
    except ImportError:
        raise ImportError("weights on disk need safetensors: pip install 'raresight[torch]'") from None
