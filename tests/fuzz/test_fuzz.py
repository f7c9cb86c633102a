"""Seeded fuzz cases of the command, a few in every run of the tests and more by `RARESIGHT_FUZZ_CASES`.

Hours of them: `make fuzz`. A case that failed runs again by `python tests/fuzz/fuzz.py --case KIND:SEED`.
"""

from __future__ import annotations

import os

import pytest

from fuzz_cases import KINDS, Case
from harness import complaint_of, laboratory, run_case

CASES = int(os.environ.get("RARESIGHT_FUZZ_CASES", "20"))
CHUNK = 20


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with laboratory(tmp_path_factory.mktemp("fuzz")) as found:
        yield found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", range(0, CASES, CHUNK))
def test_the_command_refuses_or_works(lab, kind, start):
    server, fixtures = lab
    seeds = range(start, min(start + CHUNK, CASES))
    found = [finding for seed in seeds if (finding := run_case(server, fixtures, Case(kind, seed)))]
    assert not found, "\n\n".join(map(str, found))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"hung": True}, "hung"),
        ({"signal": 11}, "signal 11"),
        ({"err": "Traceback (most recent call last):", "status": 1}, "traceback"),
        ({"status": 1, "err": "no sentence"}, "0 lines"),
        ({"status": 1, "err": "error: ArrowInvalid: offsets"}, "ArrowInvalid"),
        ({"status": 70}, "status 70"),
    ],
)
def test_what_is_wrong_is_found(answer, complaint, tmp_path):
    fine = {"hung": False, "signal": None, "status": 0, "out": "", "err": ""}
    assert complaint_of(fine, tmp_path) == ""
    assert complaint in complaint_of(fine | answer, tmp_path)


def test_torn_files_are_found(tmp_path):
    fine = {"hung": False, "signal": None, "status": 0, "out": "", "err": ""}
    (tmp_path / "report.html").write_text("<html>")
    assert "torn" in complaint_of(fine, tmp_path)
    (tmp_path / "report.html").unlink()
    (tmp_path / ".s.csv.9.unfinished").touch()
    assert "left behind" in complaint_of(fine, tmp_path)


def test_a_command_that_hangs_is_ended(lab, tmp_path):
    server, fixtures = lab
    asked = ["fit", str(fixtures.table), "--target", "label", "--out", str(tmp_path / "out")]
    assert server.run(asked, tmp_path, seconds=0.05)["hung"]
    assert server.run(["losses", "focal"], tmp_path)["status"] == 0
