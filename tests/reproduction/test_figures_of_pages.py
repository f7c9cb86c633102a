"""A page and its pictures are of one state of the journal: none is left over from another."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from deep_journals import SHORT, tables, write_journal
from deep_records import record
from raresight.common.atomic_files import write_files
from reproduction import output, reproduce
from reproduction.experiments.net_trial import SIZES, Setup
from reproduction.experiments.trials import EXPERIMENTS, ablation_trials
from reproduction.training_records import add_records, journal_path
from tiny_fraud import write_tiny_fraud

EXPERIMENT = EXPERIMENTS["ablation-c"]
FULL = SHORT.at(SIZES["full"])


def trials_of(setup):
    return ablation_trials(EXPERIMENT, EXPERIMENT.cells[0], setup)


def pictures(folder):
    return sorted(path.name for path in folder.glob("*.png"))


def test_a_picture_of_a_length_half_trained_goes_as_it_is_whole(tmp_path):
    journal = journal_path(tmp_path / "deep", "ablation-c", "cifar10")
    trials = trials_of(FULL)
    series = [trial for trial in trials if (trial.method, trial.lr, trial.draw) == ("TBL", 0.002, 0)]
    add_records(journal, [record(trial, 0.8) for trial in series])
    # Of another net, which has pages of its own.
    other = tmp_path / "ablation-c-cifar10-resnet8-width4-250-epochs.png"
    other.write_bytes(b"of another net")
    reproduce("ablation-c", tmp_path)
    assert pictures(tmp_path) == ["ablation-c-cifar10-250-epochs.png", other.name]
    add_records(journal, [record(trial, 0.8) for trial in trials])
    reproduce("ablation-c", tmp_path)
    assert pictures(tmp_path) == [other.name, "ablation-c-cifar10.png"]
    assert not list(tmp_path.glob("ablation-c-cifar10-250-epochs.*"))


def test_a_picture_of_what_was_whole_goes_as_it_is_no_longer(tmp_path):
    write_journal(tmp_path, "ablation-c")
    reproduce("ablation-c", tmp_path)
    assert pictures(tmp_path) == ["ablation-c-cifar10.png"]
    journal_path(tmp_path / "deep", "ablation-c", "cifar10").unlink()
    write_journal(tmp_path, "ablation-c", leave_out=lambda trial: trial.draw == 1)
    reproduce("ablation-c", tmp_path)
    assert pictures(tmp_path) == ["ablation-c-cifar10-21-epochs.png"]
    assert not (tmp_path / "ablation-c-cifar10.svg").exists()


@pytest.mark.parametrize("name", ["table4", "ablation-c"])
def test_tables_alone_leave_no_picture_of_other_results(tmp_path, name):
    """Nor do they need the library that draws."""
    write_journal(tmp_path, name)
    drawn = reproduce(name, tmp_path)
    paths = tables(name, tmp_path)
    assert paths == [path for path in drawn if path.suffix not in (".svg", ".png")]
    assert sorted(path for path in tmp_path.iterdir() if path.is_file()) == sorted(paths)


@pytest.mark.parametrize("name", ["table2", "ablation-c"])
def test_a_page_whose_picture_cannot_be_drawn_is_not_written(tmp_path, monkeypatch, name):
    """It would stand beside the picture of before."""
    write_journal(tmp_path, name, leave_out=lambda trial: trial.rho > 0.01)
    reproduce(name, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("*.*")}
    assert len(before) > 3
    write_journal(tmp_path, name, Setup(size=SIZES["medium"]), leave_out=lambda trial: trial.rho > 0.01)

    def no_drawing():
        raise ImportError("drawing needs matplotlib")

    monkeypatch.setattr(output, "figure_class", no_drawing)
    with pytest.raises(ImportError, match="needs matplotlib"):
        reproduce(name, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.*")} == before
    monkeypatch.undo()
    changed = reproduce(name, tmp_path)
    assert all(path.read_bytes() != before[path] for path in changed)


def test_files_are_written_together_or_not_at_all(tmp_path):
    old, new, gone = tmp_path / "old.txt", tmp_path / "new.txt", tmp_path / "gone.txt"
    old.write_text("before")
    gone.write_text("before")
    with pytest.raises(FileNotFoundError) as refused:
        write_files({old: "now", new: b"now", tmp_path / "no" / "folder.txt": "now"}, obsolete=[gone])
    assert refused.value.filename == str(tmp_path / "no" / "folder.txt")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "old.txt": "before",
        "gone.txt": "before",
    }
    assert write_files({old: "now ü\r\n", new: b"now"}, obsolete=[gone, gone]) == [old, new]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "old.txt": "now ü\r\n".encode(),
        "new.txt": b"now",
    }


class Killed(BaseException):
    """The process ends here."""


def put_in_place(count, monkeypatch):
    """Files are put in place until there are so many; then the process ends."""
    replace, done = Path.replace, []

    def counted(path, target):
        if len(done) == count:
            raise Killed
        done.append(target)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", counted)


@pytest.mark.parametrize("count", range(4))
def test_files_are_put_in_place_in_their_order(count, tmp_path, monkeypatch):
    put_in_place(count, monkeypatch)
    paths = [tmp_path / name for name in "cba"]
    with pytest.raises(Killed) if count < 3 else nullcontext():
        write_files(dict.fromkeys(paths, "text"))
    assert sorted(tmp_path.iterdir()) == sorted(paths[:count])


@pytest.mark.parametrize("count", [1, 2])
def test_results_of_fraud_always_say_of_which_table_they_are(count, tmp_path, monkeypatch):
    table = write_tiny_fraud(tmp_path, rows=200, share=0.1, shift=3)
    options = {"data": table, "families": ["linear"], "methods": ["cross entropy"], "jobs": 1, "repeats": 1}
    with monkeypatch.context() as patched:
        put_in_place(count, patched)
        with pytest.raises(Killed):
            reproduce("fraud", tmp_path / "out", **options)
    assert (tmp_path / "out" / "fraud_splits.csv").exists() == (count == 2)
    assert (tmp_path / "out" / "fraud.md") in reproduce("fraud", tmp_path / "out", **options)
