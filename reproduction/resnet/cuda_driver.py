"""Compile CUDA C++ with NVRTC, and launch its kernels through the CUDA driver.

NVRTC comes with PyTorch's CUDA builds.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# ---- Compiling ---------------------------------------------------------------------------------------------

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
    _check_nvrtc(
        library, library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
    )
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
    _check_nvrtc(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    found = ctypes.create_string_buffer(size.value)
    _check_nvrtc(library, getattr(library, f"nvrtcGet{what}")(program, found))
    return found.raw


def _check_nvrtc(library: ctypes.CDLL, result: int) -> None:
    if result:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC failed: {library.nvrtcGetErrorString(result).decode()}")


# ---- Launching ---------------------------------------------------------------------------------------------

# The driver's numbers for the shared memory that a kernel is allowed, and that a device allows.
_KERNELS_SHARED, _DEVICES_SHARED = 8, 97


class Kernel:
    """A kernel on one device, launched in blocks of so many threads and bytes of shared memory."""

    def __init__(self, code: bytes, name: str, threads: int, shared: int) -> None:
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._threads, self._shared = threads, shared
        _ensure_context()
        _check_driver(_driver().cuModuleLoadData(ctypes.byref(self._module), code))
        _check_driver(
            _driver().cuModuleGetFunction(ctypes.byref(self._function), self._module, name.encode())
        )
        if shared:
            _check_driver(_driver().cuFuncSetAttribute(self._function, _KERNELS_SHARED, shared))

    def __call__(self, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        """Launch on the current stream; tensors are given as pointers, None as a null pointer."""
        if 0 in grid:
            return
        values = [_as_argument(value) for value in arguments]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _ensure_context()
        _check_driver(
            _driver().cuLaunchKernel(
                self._function, *grid, self._threads, 1, 1, self._shared, stream, places, ctypes.c_void_p()
            )
        )


@cache
def kernel(device: int, name: str, threads: int, shared: int, defines: tuple[tuple[str, int], ...]) -> Kernel:
    """The kernel of the source file of that name, compiled once for each device and set of constants."""
    major, minor = torch.cuda.get_device_capability(device)
    code = compile_cuda(source_of(name), dict(defines), f"sm_{major}{minor}")
    return Kernel(code, name, threads, shared)


def most_shared(device: int) -> int:
    """Bytes of shared memory that a block of threads may have."""
    found, handle = ctypes.c_int(), ctypes.c_int()
    _check_driver(_driver().cuDeviceGet(ctypes.byref(handle), device))
    _check_driver(_driver().cuDeviceGetAttribute(ctypes.byref(found), _DEVICES_SHARED, handle))
    return found.value


def _as_argument(value: Any) -> Any:
    if value is None or isinstance(value, Tensor):
        return ctypes.c_void_p(0 if value is None else value.data_ptr())
    return value


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError("the CUDA driver was not found")


def _ensure_context() -> None:
    """Threads such as autograd's begin without a context, until PyTorch calls CUDA's runtime in them."""
    current = ctypes.c_void_p()
    _check_driver(_driver().cuCtxGetCurrent(ctypes.byref(current)))
    if current.value is None:
        context, device = ctypes.c_void_p(), ctypes.c_int()
        _check_driver(_driver().cuDeviceGet(ctypes.byref(device), torch.cuda.current_device()))
        _check_driver(_driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        _check_driver(_driver().cuCtxSetCurrent(context))


def _check_driver(result: int) -> None:
    if result:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(result, ctypes.byref(text))
        raise RuntimeError(f"CUDA failed: {(text.value or b'unknown error').decode()}")
