"""Write what is made from the registered losses: the table in docs/losses.md and the stubs of `raresight.nn`.

    make generated          # or: python docs/generate.py

A test compares the files with what this makes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from raresight import losses
from raresight.losses.registry import loss_kinds
from raresight.nn import modules
from raresight.nn.criterion import function_source, module_source, named_losses
from raresight.report.loss_tables import markdown_table

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "raresight"
NN = PACKAGE / "nn"
BEGIN, END = "<!-- generated: losses -->", "<!-- end -->"

_STUB = '''"""Types of the names that `{file}` makes from the losses (written by docs/generate.py)."""

from collections.abc import Sequence
from typing import Any, Unpack

{imports}

'''


def generated() -> dict[Path, str]:
    """The text of every generated file."""
    return {
        NN / "functional.pyi": _stub(
            "functional.py",
            "from torch import Tensor\n\nfrom .criterion import LossOptions, Prior\n"
            "from .criterion import loss_with_logits as loss_with_logits",
            [function_source(name, kind, typed=True) for name, kind in named_losses().items()],
            "def __getattr__(name: str) -> Any: ...",
        ),
        NN / "modules.pyi": _stub(
            "modules.py",
            "from .criterion import LossModule as LossModule\nfrom .criterion import LossOptions, Prior\n"
            "from .criterion import as_module as as_module",
            [module_source(name, kind, typed=True) for name, kind in named_losses().items()],
            f"__all__ = {modules.__all__!r}\ndef __getattr__(name: str) -> Any: ...",
        ),
        PACKAGE / "losses" / "__init__.pyi": _formatted("__init__.pyi", _losses_stub()),
        ROOT / "docs" / "losses.md": _page(),
    }


def _stub(file: str, imports: str, sources: list[str], end: str) -> str:
    # The end gives names to the losses that other packages register.
    text = "\n".join([_STUB.format(file=file, imports=imports), *sources, end, ""])
    return _formatted(f"{file}i", text)


def _losses_stub() -> str:
    """The names of `raresight.losses`, each from the module that defines it."""
    lines = [
        f"from .{getattr(losses, name).__module__.rsplit('.', 1)[1]} import {name} as {name}"
        for name in sorted(losses.__all__)
    ]
    about = '"""Types of the names that `__init__.py` gathers (written by docs/generate.py)."""'
    return "\n".join([about, "", *lines, ""])


def _formatted(file: str, text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--fix", "--quiet", "--select", "I,RUF022"], ["format"]):
        call = [str(ruff), *command, "--stdin-filename", file, "-"]
        text = subprocess.run(call, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def _page() -> str:
    page = (ROOT / "docs" / "losses.md").read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n{markdown_table(loss_kinds().values())}\n{END}{after}"


if __name__ == "__main__":
    for path, text in generated().items():
        if path.exists() and path.read_text() == text:
            continue
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
