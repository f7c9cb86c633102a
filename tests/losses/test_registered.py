"""A loss of another package gets everything: a made-up loss, by an entry point and by the decorator."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

from raresight.losses import MarginLoss, param, register
from raresight.losses.parameters import positive


@register
@dataclass(frozen=True)
class Tempered(MarginLoss):
    """Cross entropy of scores in units of a temperature: softplus(-t m)/t, whose link is t z."""

    t: float = param(2.0, positive, search=(0.5, 4.0), log=True)
    name: ClassVar[str] = "tempered"
    formula: ClassVar[str] = "log(1 + e^-tm)/t"

    def numbers(self):
        return (self.t,)

    @staticmethod
    def phi(ops, m, order, t):
        scaled = ops.finite(t * m)
        x, q = ops.logistic(scaled)
        terms = ops.saturate(x / t), -q, t * q * ops.sigmoid(scaled)
        return terms[: order + 1]

    def log_slope(self, ops, m):
        scaled = ops.finite(self.t * m)
        return -ops.softplus(scaled), -self.t * ops.sigmoid(scaled)
'''

# What every part of the tool makes of it; cross entropy at t z, divided by t, is the reference.
EVERYTHING = """
import contextlib
import io
import math
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from raresight import nn
from raresight.boosting import LightGBMClassifier, XGBoostClassifier
from raresight.cli import main
from raresight.linear import LinearClassifier
from raresight.losses import CrossEntropy, all_losses, parse
from raresight.losses.plan import plan_of
from raresight.losses.start import start_of
from raresight.nn.functional import tempered_loss
from raresight.nn.loss_table import LossTable
from raresight.nn.nets import MLP
from raresight.report.loss_tables import markdown_table
from raresight.theory.analysis import limiting_index
from raresight.theory.gaussian import GaussianMixture
from raresight.theory.limits import limiting_rule
from raresight.theory.risk import limiting_f_function

loss = parse("tempered(t=3.0)")
assert str(loss) == "tempered(t=3.0)" and type(loss).example() in all_losses()
random = np.random.default_rng(0)
z, y = random.normal(size=200) * 3, (random.random(200) < 0.3).astype(int)
reference = CrossEntropy().derivatives(3 * z, y)
for mine, other, times in zip(loss.derivatives(z, y), reference, (1 / 3, 1, 3)):
    np.testing.assert_allclose(mine, other * times, rtol=1e-12)
np.testing.assert_allclose(loss.log_odds(z), 3 * z, rtol=1e-12)
assert math.isclose(start_of(loss, (0.99, 0.01)).scores[0], math.log(1 / 99) / 3, rel_tol=1e-9)
assert plan_of(loss, (1, 2), np.float32) is not None

for dtype in (np.float32, np.float64):
    largest = np.finfo(dtype).max
    far = np.array([-largest, -largest / 2, -300.0, 300.0, largest], dtype)
    for extreme in (parse("tempered(t=0.5)"), loss):
        for label in (0, 1):
            same = np.full(far.shape, label)
            terms = extreme.derivatives(far, same)
            assert all(np.isfinite(term).all() for term in terms)
            for mine, other in zip(extreme.derivatives(torch.tensor(far), torch.tensor(same)), terms):
                np.testing.assert_allclose(mine, other, rtol=1e-5)
        assert np.isfinite(extreme.log_odds(far)).all()

scores, labels = torch.tensor(z), torch.tensor(y)
expected = torch.tensor(float(loss.value(z, y).mean()), dtype=torch.float64)
torch.testing.assert_close(nn.TemperedLoss(t=3.0)(scores, labels), expected)
torch.testing.assert_close(tempered_loss(scores, labels, t=3.0), expected)
table = LossTable(["tempered(t=3.0)", "crossentropy", "tempered(t=1.0)"])
values = table(scores.expand(3, -1), labels)
torch.testing.assert_close(values[0], expected)
torch.testing.assert_close(values[1], values[2])

X = random.normal(size=(4000, 3))
target = (random.random(4000) < 1 / (1 + np.exp(3.5 - X @ [1.5, 1.0, 0.0]))).astype(int)
assert [tail_term for tail_term in (loss.tail().growth, loss.tail().decay)] == [0.0, 3.0]
assert math.isclose(limiting_index(loss), 1.0)
mine = LinearClassifier(loss="tempered(t=2.0)", l2=0.0, tol=1e-10).fit(X, target)
plain = LinearClassifier(loss="crossentropy", l2=0.0, tol=1e-10).fit(X, target)
np.testing.assert_allclose(2 * mine.coef_, plain.coef_, rtol=1e-5, atol=1e-7)
for kind in (LightGBMClassifier, XGBoostClassifier):
    model = kind(loss="tempered", n_estimators=20, n_jobs=1).fit(X, target)
    chance = model.predict_proba(X)[:, 1]
    assert abs(chance.mean() - target.mean()) < 0.01

# At a third of the score everything is that of cross entropy.
minority, majority = (GaussianMixture([1.0], [[mean]], [[[1.0]]]) for mean in (1.0, 0.0))
rules = [limiting_rule(each, minority, majority).at(1e-3) for each in (loss, CrossEntropy())]
np.testing.assert_allclose(3 * rules[0].w, rules[1].w, rtol=1e-9)
assert math.isclose(3 * rules[0].b, rules[1].b, rel_tol=1e-9)
limits = [limiting_f_function(each, 0.5, 1e-3) for each in (loss, CrossEntropy())]
assert math.isclose(3 * limits[0], limits[1], rel_tol=1e-9)

replicas = nn.Replicas(partial(MLP, 3, hidden=(4,)), ["tempered(t=1.0)", "crossentropy"], seeds=(1, 1))
recipe = nn.Recipe(epochs=2, lr=0.01, warmup_epochs=1)
nn.train(replicas, (X[:500], target[:500]), recipe, progress=False)
trained = replicas.scores(torch.tensor(X[:50], dtype=torch.float32))
torch.testing.assert_close(trained[0], trained[1], rtol=1e-4, atol=1e-5)

reach = type(loss).search_ranges()["t"]
assert (reach.low, reach.high, reach.default, reach.log) == (0.5, 4.0, 2.0, True)
assert "| `Tempered(t=2.0)` | log(1 + e^-tm)/t | yes |" in markdown_table([type(loss)])


def command(*words):
    sys.argv, out = ["raresight", *map(str, words)], io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main()
    return out.getvalue()


assert "tempered" in command("losses")
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "table.csv"
    np.savetxt(path, np.column_stack([X, target])[:1500], delimiter=",", header="a,b,c,rare", comments="")
    asked = "--target rare --families linear --losses tempered --trials 3 --fpr 0.05 --max-fpr 0.1 --jobs 1"
    command("fit", path, *asked.split(), "--quiet", "--out", f"{folder}/run")
    assert "tempered(t=2.0)" in (Path(folder) / "run" / "leaderboard.csv").read_text()
print("everything")
"""


@pytest.fixture
def package(tmp_path):
    """An installed package `made_up` with the loss, as pip would leave it."""
    (tmp_path / "made_up.py").write_text(MODULE)
    return tmp_path


def run(package, code):
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "error"],
        input=code,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_by_an_entry_point(package):
    about = package / "made_up-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[raresight.losses]\ntempered = made_up:Tempered\n")
    assert "everything" in run(package, EVERYTHING)


def test_by_the_decorator(package):
    assert "everything" in run(package, "import made_up\n" + EVERYTHING)


FIT = """
import numpy as np, pyarrow, raresight, sys, warnings
random = np.random.default_rng(0)
rare = np.arange(1500) % 25 == 0
table = pyarrow.table({"a": random.normal(size=1500) + 2 * rare, "b": random.normal(size=1500), "y": rare})
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    result = raresight.fit(
        table, target="y", families="linear", losses="tempered", trials=3, max_fpr=0.1, fpr=0.05, jobs=2
    )
states = {row.candidate.loss: row.state for row in result.leaderboard}
print(sorted(states.items()), [each.category.__name__ for each in seen])
"""


@pytest.mark.parametrize("place", ["a module", "the script"])
def test_a_fit_in_processes_knows_a_loss_that_a_script_registers(package, place):
    """A script on standard input, as a notebook: no other process can import it."""
    head = "import made_up\n" if place == "a module" else MODULE
    printed = run(package, head + FIT)
    assert "('tempered(t=2.0)', 'complete')" in printed
    assert "failed" not in printed
    assert ("OneProcessWarning" in printed) == (place == "the script")


def test_an_entry_point_that_fails_is_named(package):
    about = package / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[raresight.losses]\ngone = no_such_module:Gone\n")
    code = (
        "import warnings\n"
        "from raresight.losses import all_losses\n"
        "from raresight.losses.registry import EntryPointWarning\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    assert len(all_losses()) > 8\n"
        "(one,) = [each for each in seen if each.category is EntryPointWarning]\n"
        "assert 'no_such_module:Gone' in str(one.message)\n"
    )
    run(package, code)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("class Mine: pass", "TypeError"),
        ("@dataclass\nclass Mine(MarginLoss):\n    name = 'mine'", "TypeError"),
        ("@dataclass(frozen=True)\nclass Mine(Tempered):\n    name = 'focal'", "ValueError"),
        ("@dataclass(frozen=True)\nclass Mine(Tempered):\n    name = 'Two Words'", "TypeError"),
        (
            "@dataclass(frozen=True)\nclass Mine(Tempered):\n    name = 'mine'\n    prior: float = 0.1",
            "ValueError",
        ),
    ],
)
def test_what_cannot_be_registered(package, text, error):
    code = (
        "from dataclasses import dataclass\n"
        "from made_up import Tempered\n"
        "from raresight.losses import MarginLoss, parse, register\n"
        "parse('focal')\n"
        f"{text}\n"
        "try:\n    register(Mine)\n"
        f"except {error} as failure:\n    print(failure)\n"
        "else:\n    raise SystemExit('registered')\n"
    )
    assert run(package, code).strip()
