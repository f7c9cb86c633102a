"""Read the native file of a booster once and see that it can be scored with: a program, not a module.

    python -I -S native_reader.py LIBRARY NATIVE FILE COLUMNS SCORES SECONDS

NATIVE is the library's shared object; a row has SCORES scores: one, or one per class.

The readers of LightGBM and XGBoost trust their files: a damaged one may crash the process, fill its memory or
never come back. So `native_files` lets a process of its own go first. It calls the libraries by their C
interfaces, for importing their Python packages takes a second and this a twentieth of it.

It prints `begun`, then nothing or `refused: why`. All other ends are those of a crash.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
from typing import Any

_BASE_MEMORY = 1 << 30
# Trees as lists of Python take up to 40 times the bytes of XGBoost's binary form.
_MEMORY_PER_BYTE = 64
# What splits meet: nothing, a code, and numbers beyond all thresholds.
_VALUES = (float("nan"), 0.0, 1e30, -1e30)


class UnsoundError(Exception):
    """The file was read, but scores by it would leave its arrays or never end."""


def main() -> None:
    library, shared, path, columns, scores, seconds = sys.argv[1:]
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    with open(path, "rb") as file:
        content = file.read()
    native = ctypes.CDLL(shared)
    _limit(int(seconds), _BASE_MEMORY + _MEMORY_PER_BYTE * len(content))
    try:
        _READERS[library](native, content, int(columns), int(scores))
    except (UnsoundError, MemoryError, ValueError, KeyError, TypeError, IndexError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        sys.stdout.write(f"\nrefused: {why}\n")
        sys.stdout.flush()
    # Without the ends of the libraries' threads, which have nothing to say.
    os._exit(0)


def _limit(seconds: int, memory: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The caller stops this process in time, unless it was killed meanwhile.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return
    # From here on: a library maps more than it uses.
    resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))


def _rows(kind: Any, columns: int) -> Any:
    return (kind * (len(_VALUES) * columns))(*(value for value in _VALUES for _ in range(columns)))


def _whole_numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


# ---- LightGBM ----------------------------------------------------------------------------


def _read_lightgbm(native: Any, content: bytes, columns: int, classes: int) -> None:
    def call(name: str, *arguments: Any) -> None:
        if getattr(native, name)(*arguments):
            native.LGBM_GetLastError.restype = ctypes.c_char_p
            # Where in LightGBM that was follows, which says nothing here.
            raise UnsoundError(native.LGBM_GetLastError().decode(errors="replace").split(" at /")[0])

    try:
        content.decode()
    except ValueError:
        raise UnsoundError("it is no text in UTF-8") from None
    handle, count, length = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int64()
    call("LGBM_BoosterLoadModelFromString", content, ctypes.byref(count), ctypes.byref(handle))
    for what, wanted in (("Feature", columns), ("Classes", classes)):
        call(f"LGBM_BoosterGetNum{what}", handle, ctypes.byref(count))
        if count.value != wanted:
            raise UnsoundError(f"the number {what} is {count.value} where {wanted} is needed")
    # As LightGBM understood it, not as it is written: a header may lead its reader elsewhere.
    buffer = ctypes.create_string_buffer(2 * len(content) + (1 << 16))
    room = ctypes.c_int64(len(buffer))
    call("LGBM_BoosterSaveModelToString", handle, 0, -1, 0, room, ctypes.byref(length), buffer)
    if length.value > len(buffer):
        raise UnsoundError("what LightGBM makes of it is longer than twice the file")
    text = buffer.value.decode()
    if f"num_tree_per_iteration={classes}\n" not in text:
        raise UnsoundError("it has another number of trees per round than of scores per row")
    for tree in text.split("\nend of trees")[0].split("\nTree=")[1:]:
        _check_tree(dict(line.split("=", 1) for line in tree.splitlines() if "=" in line), columns)
    # All that `Booster` and the model ask for, too. What has no colon LightGBM would read beyond its end.
    listed = text.split("\nparameters:")[-1].split("\nend of parameters")[0].split("\n")
    if not all(line[0] == "[" and ":" in line and line[-1] == "]" for line in listed if line):
        raise UnsoundError("its list of parameters is garbled")
    call("LGBM_BoosterGetLoadedParam", handle, room, ctypes.byref(length), buffer)
    json.loads(buffer.value)
    call("LGBM_BoosterFeatureImportance", handle, -1, 1, (ctypes.c_double * columns)())
    scores = (ctypes.c_double * (classes * len(_VALUES)))()
    rows = _rows(ctypes.c_double, columns)
    shape = (ctypes.c_int32(len(_VALUES)), ctypes.c_int32(columns))
    options = (1, 1, 0, -1, b"num_threads=1", ctypes.byref(length), scores)
    call("LGBM_BoosterPredictForMat", handle, rows, 1, *shape, *options)


def _check_tree(tree: dict[str, str], columns: int) -> None:
    leaves = int(tree["num_leaves"])
    scores = [float(word) for word in tree["leaf_value"].split()]
    if leaves < 1 or tree.get("is_linear", "0") != "0" or len(scores) != leaves:
        raise UnsoundError("a tree has other leaves than it says")
    if not all(map(math.isfinite, scores)):
        raise UnsoundError("a leaf has no finite score")
    if leaves == 1:
        return
    names = ("split_feature", "left_child", "right_child", "decision_type")
    features, left, right, kinds = (_whole_numbers(tree[name]) for name in names)
    thresholds = [float(word) for word in tree["threshold"].split()]
    # Each node but the root and each leaf hangs on one node: a walk from the root then comes to an end.
    hanging = [*range(-leaves, 0), *range(1, leaves - 1)]
    if len(left) != leaves - 1 or sorted(left + right) != hanging:
        raise UnsoundError("the nodes of a tree hang together in another way than a tree's")
    if not len(features) == len(kinds) == len(thresholds) == leaves - 1:
        raise UnsoundError("a tree has fewer splits than nodes")
    if not 0 <= min(features) <= max(features) < columns:
        raise UnsoundError("a tree splits by a column that is not there")
    sets = [place for place, kind in zip(thresholds, kinds) if kind & 1]
    if sets:
        ends, words = _whole_numbers(tree["cat_boundaries"]), len(tree["cat_threshold"].split())
        if not 0 <= min(sets) <= max(sets) < len(ends) - 1:
            raise UnsoundError("a tree splits by a set of categories that is not there")
        if ends[0] != 0 or ends[-1] != words or ends != sorted(ends):
            raise UnsoundError("the sets of categories of a tree overlap or end elsewhere")


# ---- XGBoost -----------------------------------------------------------------------------


def _read_xgboost(native: Any, content: bytes, columns: int, classes: int) -> None:
    def call(name: str, *arguments: Any) -> None:
        if getattr(native, name)(*arguments):
            native.XGBGetLastError.restype = ctypes.c_char_p
            # "[time] file:line: what", then a stack of the library's own.
            said = native.XGBGetLastError().decode(errors="replace").strip().split("\n")[0]
            raise UnsoundError(said.split(": ", 1)[-1] if said.startswith("[") else said)

    handle, length, text = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_char_p()
    call("XGBoosterCreate", None, ctypes.c_uint64(0), ctypes.byref(handle))
    for name, value in ((b"nthread", b"1"), (b"verbosity", b"0")):
        call("XGBoosterSetParam", handle, name, value)
    call("XGBoosterLoadModelFromBuffer", handle, content, ctypes.c_uint64(len(content)))
    call(
        "XGBoosterSaveModelToBuffer", handle, b'{"format": "json"}', ctypes.byref(length), ctypes.byref(text)
    )
    learner = json.loads(ctypes.string_at(text, length.value))["learner"]
    sizes, booster = learner["learner_model_param"], learner["gradient_booster"]
    found = [int(sizes.get(name, least)) for name, least in _SIZES]
    wanted = [columns, 0 if classes == 1 else classes, 1]
    if found != wanted:
        raise UnsoundError(f"columns, classes and targets are {found} where {wanted} are needed")
    weights: list[float] | None = None
    if booster["name"] == "dart":
        weights, booster = booster["weight_drop"], booster["gbtree"]
    if booster["name"] != "gbtree":
        raise UnsoundError("it holds no trees")
    model = booster["model"]
    trees, rounds = model["trees"], model.get("iteration_indptr", [0])
    if weights is not None and (len(weights) != len(trees) or not all(map(math.isfinite, weights))):
        raise UnsoundError("its trees have other weights than one number each")
    if not {*model["tree_info"]} <= {*range(classes)} or len(model["tree_info"]) != len(trees):
        raise UnsoundError("its trees belong to other classes")
    if rounds != sorted(rounds) or rounds[0] != 0 or rounds[-1] not in (0, len(trees)):
        raise UnsoundError("its rounds end beyond its trees")
    for tree in trees:
        _check_nodes(tree, columns)
    rows = _rows(ctypes.c_float, columns)
    matrix = {"data": [ctypes.addressof(rows), True], "shape": [len(_VALUES), columns]}
    described = json.dumps(matrix | {"typestr": "<f4", "version": 3}).encode()
    options = {"type": 1, "training": False, "iteration_begin": 0, "iteration_end": 0, "strict_shape": True}
    asked = json.dumps(options | {"cache_id": 0, "missing": float("nan")}).encode()
    shape, scores, names = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    answer = (ctypes.byref(shape), ctypes.byref(length), ctypes.byref(scores))
    call("XGBoosterPredictFromDense", handle, described, asked, None, *answer)
    counted = (ctypes.byref(length), ctypes.byref(names), ctypes.byref(ctypes.c_uint64()))
    asked = b'{"importance_type": "total_gain"}'
    call("XGBoosterFeatureScore", handle, asked, *counted, ctypes.byref(shape), ctypes.byref(scores))


_SIZES = (("num_feature", -1), ("num_class", 0), ("num_target", 1))


def _check_nodes(tree: dict[str, Any], columns: int) -> None:
    left, right = tree["left_children"], tree["right_children"]
    features, kinds = tree["split_indices"], tree["split_type"]
    nodes = len(left)
    values = tree["split_conditions"]
    if not 0 < nodes == len(right) == len(features) == len(kinds) == len(values):
        raise UnsoundError("a tree has fewer splits than nodes")
    inner = [node for node in range(nodes) if left[node] != -1]
    children = [child for node in inner for child in (left[node], right[node])]
    # No node hangs on two, and the root on none: a walk from the root then comes to an end.
    if len(set(children)) != len(children) or not all(0 < child < nodes for child in children):
        raise UnsoundError("the nodes of a tree hang together in another way than a tree's")
    if not all(map(math.isfinite, (values[node] for node in range(nodes) if left[node] == -1))):
        raise UnsoundError("a leaf has no finite score")
    if not all(0 <= features[node] < columns for node in inner):
        raise UnsoundError("a tree splits by a column that is not there")
    words = len(tree["categories"])
    parts = zip(tree["categories_segments"], tree["categories_sizes"], strict=True)
    if not all(0 <= start <= start + size <= words for start, size in parts):
        raise UnsoundError("a set of categories ends elsewhere")
    if not {node for node in inner if kinds[node] == 1} <= set(tree["categories_nodes"]):
        raise UnsoundError("a tree splits by a set of categories that is not there")


_READERS = {"lightgbm": _read_lightgbm, "xgboost": _read_xgboost}

if __name__ == "__main__":
    main()
