"""CUDA kernels of our own on the current device and stream, through the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from .compiling import compile_cuda, source_of

__all__ = ["Kernel", "kernel", "most_shared"]

# The driver's numbers for the shared memory that a kernel is allowed, and that a device allows.
_KERNELS_SHARED, _DEVICES_SHARED = 8, 97


class Kernel:
    """A kernel on one device, launched in blocks of so many threads and bytes of shared memory."""

    def __init__(self, code: bytes, name: str, threads: int, shared: int) -> None:
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._threads, self._shared = threads, shared
        _ensure_context()
        _check(_driver().cuModuleLoadData(ctypes.byref(self._module), code))
        _check(_driver().cuModuleGetFunction(ctypes.byref(self._function), self._module, name.encode()))
        if shared:
            _check(_driver().cuFuncSetAttribute(self._function, _KERNELS_SHARED, shared))

    def __call__(self, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        """Launch on the current stream; tensors are given as pointers, None as a null pointer."""
        if 0 in grid:
            return
        values = [_as_argument(value) for value in arguments]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _ensure_context()
        _check(
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
    _check(_driver().cuDeviceGet(ctypes.byref(handle), device))
    _check(_driver().cuDeviceGetAttribute(ctypes.byref(found), _DEVICES_SHARED, handle))
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
    _check(_driver().cuCtxGetCurrent(ctypes.byref(current)))
    if current.value is None:
        context, device = ctypes.c_void_p(), ctypes.c_int()
        _check(_driver().cuDeviceGet(ctypes.byref(device), torch.cuda.current_device()))
        _check(_driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        _check(_driver().cuCtxSetCurrent(context))


def _check(result: int) -> None:
    if result:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(result, ctypes.byref(text))
        raise RuntimeError(f"CUDA failed: {(text.value or b'unknown error').decode()}")
