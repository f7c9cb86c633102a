"""Write what is made from the registered losses: the table in docs/losses.md and the stubs of `raresight.nn`.

    make generated          # or: python docs/generate.py

A test compares the files with what this makes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from raresight.losses.registry import loss_kinds
from raresight.nn.criterion import function_source, module_source, named_losses
from raresight.report.loss_tables import markdown_table

ROOT = Path(__file__).parents[1]
NN = ROOT / "src" / "raresight" / "nn"
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
        ),
        NN / "modules.pyi": _stub(
            "modules.py",
            "from .criterion import LossModule as LossModule\nfrom .criterion import LossOptions, Prior\n"
            "from .criterion import as_module as as_module",
            [module_source(name, kind, typed=True) for name, kind in named_losses().items()],
        ),
        ROOT / "docs" / "losses.md": _page(),
    }


def _stub(file: str, imports: str, sources: list[str]) -> str:
    text = _STUB.format(file=file, imports=imports) + "\n".join(sources)
    # Names of losses that other packages register.
    text += "\ndef __getattr__(name: str) -> Any: ...\n"
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--stdin-filename", file.replace(".py", ".pyi"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


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
