"""CUDA C++ to machine code, by the compiler that comes with PyTorch's CUDA builds (NVRTC)."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import torch

__all__ = ["compile_cuda", "compiler", "source_of"]

SOURCES = Path(__file__).parent / "cuda"
_ON_TILES = ("forward", "backward", "in_use")


@lru_cache(maxsize=1)
def compiler() -> ctypes.CDLL | None:
    """NVRTC, or None where there is none; of several the one of the CUDA that PyTorch was built with."""
    major = (torch.version.cuda or "").split(".")[0]
    names = (f"libnvrtc.so.{major}", f"nvrtc64_{major}0_0.dll", "libnvrtc.so")
    for name in (*_installed(major), *names):
        try:
            return ctypes.CDLL(str(name))
        except OSError:
            continue
    return None


def _installed(major: str) -> list[Path]:
    """What the packages of PyTorch's wheels have.

    NVRTC loads a second library, its builtins, by name alone: it is loaded here, so that it is found.
    """
    package = find_spec("nvidia")
    found = [
        library
        for folder in (package.submodule_search_locations if package else None) or ()
        for place in (f"cu{major}/lib", "cuda_nvrtc/lib", "cuda_nvrtc/bin")
        for library in sorted(Path(folder).glob(f"{place}/*nvrtc*"))
        if ".alt." not in library.name and (".so" in library.name or library.suffix == ".dll")
    ]
    for library in found:
        if "builtins" in library.name:
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return [library for library in found if "builtins" not in library.name]


def source_of(name: str) -> str:
    """A kernel's source with what it needs before it."""
    parts = ["primitives.cuh", *(["tile.cuh"] if name in _ON_TILES else []), f"{name}.cu"]
    return "\n".join((SOURCES / part).read_text(encoding="utf-8") for part in parts)


def compile_cuda(source: str, defines: Mapping[str, int], architecture: str) -> bytes:
    """Machine code for an architecture such as "sm_90"; an error holds what the compiler said.

    FMA contraction is left on: a * b + c is rounded once.
    """
    library = compiler()
    if library is None:
        raise RuntimeError("NVRTC, the compiler of CUDA C++ that comes with PyTorch, was not found")
    options = [f"--gpu-architecture={architecture}", "--std=c++17"]
    options += [f"-D{name}={value}" for name, value in defines.items()]
    program = ctypes.c_void_p()
    text = ctypes.create_string_buffer(source.encode())
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None))
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library.nvrtcCompileProgram(program, len(options), given):
            log = _result(library, "ProgramLog", program).decode()
            raise RuntimeError(f"the kernels could not be compiled for {architecture}:\n{log}")
        return _result(library, "CUBIN", program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _result(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    found = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, found))
    return found.raw


def _check(library: ctypes.CDLL, result: int) -> None:
    if result:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC failed: {library.nvrtcGetErrorString(result).decode()}")
