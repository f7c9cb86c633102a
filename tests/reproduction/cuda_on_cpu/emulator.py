"""The CUDA kernels on a CPU: each is compiled by g++ with `emulation.h` for a GPU's instructions."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch

from reproduction.resnet import cuda_driver

HERE = Path(__file__).parent
# Of an H100, of which a kernel cannot have more.
MOST_SHARED = 227 * 1024


def why_not() -> str | None:
    """Why kernels cannot be emulated here; None where they can."""
    return None if shutil.which("g++") else "g++ is not installed, and runs the CUDA kernels on a CPU"


@cache
def emulated(
    device: int, name: str, threads: int, shared: int, defines: tuple[tuple[str, int], ...]
) -> Callable[..., None]:
    """In place of `reproduction.resnet.cuda_driver.kernel`."""
    assert shared <= MOST_SHARED
    source = cuda_driver.source_of(name).replace(
        (cuda_driver.SOURCES / "primitives.cuh").read_text(), (HERE / "emulation.h").read_text()
    )
    source += (
        'extern "C" const char* launch(int x, int y, int z, int threads, int shared, void** arguments) '
        f"{{ return emulated::launch<&{name}>(x, y, z, threads, shared, arguments); }}\n"
    )
    library = ctypes.CDLL(str(_compiled(source, tuple(f"-D{key}={value}" for key, value in defines))))
    library.launch.restype = ctypes.c_char_p

    def launch(grid: tuple[int, int, int], arguments: Sequence[object]) -> None:
        values = [_as_argument(value) for value in arguments]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        failure = library.launch(*grid, threads, shared, places)
        assert failure is None, f"{name}: {failure.decode()}"

    return launch


def _compiled(source: str, options: tuple[str, ...]) -> Path:
    """Kept from one run to the next, and shared by the processes of one."""
    folder = Path(tempfile.gettempdir()) / f"raresight-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    place = folder / (hashlib.sha256(repr((source, options)).encode()).hexdigest()[:24] + ".so")
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:
            (Path(own) / "kernel.cpp").write_text(source)
            # Its jumps between stacks are taken for errors by _FORTIFY_SOURCE.
            command = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-U_FORTIFY_SOURCE"]
            command += ["-Wno-unknown-pragmas", *options, "-o", f"{own}/kernel.so", f"{own}/kernel.cpp"]
            subprocess.run(command, check=True)
            Path(own, "kernel.so").replace(place)
    return place


def _as_argument(value: object) -> object:
    if value is None or isinstance(value, torch.Tensor):
        return ctypes.c_void_p(0 if value is None else value.data_ptr())
    return value
