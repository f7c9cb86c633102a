"""Sizes that have no name are found in the journals by the lengths of their trainings."""

from __future__ import annotations

import pytest

from deep_journals import SHORT, rows_of, tables, write_journal
from reproduction import reproduce
from reproduction.experiments.net_trial import SIZES, NetTrial, Size, size_of
from reproduction.experiments.results import incomplete_lines, sizes_in
from reproduction.experiments.trials import EXPERIMENTS
from reproduction.training_records import add_records, journal_path

OWN = SHORT.at(size_of("8,16"))


def names(finished, experiment="table2", setup=SHORT):
    return [size.name for size in sizes_in(EXPERIMENTS[experiment], setup, finished)]


def test_a_size_has_one_name_however_it_is_typed():
    assert size_of(" 8, 016") == size_of("8,16") == Size("8,16", 8, 16)


@pytest.mark.parametrize("experiment", list(EXPERIMENTS))
def test_a_length_is_led_back_to_a_size_with_it(experiment):
    own = EXPERIMENTS[experiment]
    for epochs in (*range(1, 40), 167, 200, 250, 300):
        setup = SHORT.at(Size("some", epochs, epochs))
        length = own.epochs("final", setup)
        size = Size("other", 1, own.unstretched(length))
        assert own.epochs("final", SHORT.at(size)) == length


def test_the_overview_of_other_sizes_alone(tmp_path):
    """As with `--size 8,16`; of deer among horses their trainings are half as long again."""
    write_journal(tmp_path, "table2", OWN)
    write_journal(tmp_path, "deer-horse", OWN, leave_out=lambda trial: trial.role != "paper")
    write_journal(tmp_path, "ablation-c", OWN)
    text = reproduce("overview", tmp_path)[0].read_text(encoding="utf-8")
    for rho in ("0.01", "0.05", "0.1"):
        words = "shortened, 16 of 250 epochs"
        assert f"| Table 2 | halves, rho {rho} | {words}, 27 nets | {words}, 54 nets |" in text
    assert "rho 0.002 | shortened, 24 of 250 epochs, 27 nets | not trained |" in text
    assert "| Figure 4 | deer among horses, rho 0.01 | shortened, 24 of 250 epochs, 192 nets" in text
    assert "|  | rho 0.01, 16 epochs | rho 0.05, 16 epochs | rho 0.1, 16 epochs |" in text
    assert "Begun at another length" not in text


def test_a_page_has_the_sizes_that_the_journal_has(tmp_path):
    write_journal(tmp_path, "table2", OWN)
    csv, page, *_ = tables("table2", tmp_path, tell=(told := []).append)
    assert {(row["size"], row["epochs"]) for row in rows_of(csv)} == {("8,16", "16")}
    # Nobody asked for the short trainings, which are not begun; who does is told what they lack.
    assert told == []
    assert "Not trained yet" not in page.read_text()
    tables("table2", tmp_path, tell=told.append, size="short")
    assert "missing: halves, rho 0.01: 90 of 90 search trainings of 7 epochs" in told
    write_journal(tmp_path, "ablation-c", OWN, leave_out=lambda trial: trial.draw == 1 and trial.seed == 2)
    csv, page, *_ = tables("ablation-c", tmp_path)
    # It has no search, and of a size of that name the same trainings.
    assert {(row["size"], row["epochs"], row["draws"]) for row in rows_of(csv)} == {("16,16", "24", "0")}


def test_trainings_longer_than_the_papers_are_not_called_shortened(tmp_path):
    write_journal(
        tmp_path, "table2", SHORT.at(size_of("1,300")), leave_out=lambda trial: trial.role != "paper"
    )
    text = reproduce("overview", tmp_path)[0].read_text(encoding="utf-8")
    assert "| halves, rho 0.01 | lengthened, 300 epochs for 250, 27 nets | not trained |" in text
    assert "(paper 85.41, of 250 epochs)" in text
    assert "short" not in text


def test_the_longest_of_several_sizes_is_shown_first(tmp_path):
    write_journal(tmp_path, "table2")
    finished = write_journal(tmp_path, "table2", OWN)
    assert names(finished) == ["short", "medium", "full", "8,16"]
    text = reproduce("overview", tmp_path)[0].read_text(encoding="utf-8")
    assert "shortened, 16 of 250 epochs, 54 nets" in text
    assert "shortened, 14" not in text
    rows = rows_of(tables("table2", tmp_path)[0])
    assert list(dict.fromkeys(row["epochs"] for row in rows)) == ["16", "14"]


def test_what_another_size_lacks_is_listed(tmp_path):
    """And nothing of sizes that nobody trained, which have trainings in common with those that are there."""
    write_journal(tmp_path, "table2")

    def is_lost(trial):
        return trial.rho > 0.01 or (trial.role == "final" and trial.method == "VS")

    finished = write_journal(tmp_path, "table2", OWN, leave_out=is_lost)
    lines = ["halves, rho 0.01: 6 of 54 final trainings of 16 epochs"]
    assert incomplete_lines(EXPERIMENTS["table2"], SHORT, finished) == lines
    assert f"Table 2, {lines[0]}." in reproduce("overview", tmp_path)[0].read_text(encoding="utf-8")
    tables("table2", tmp_path, tell=(told := []).append)
    assert told == [f"missing: {lines[0]}"]


def test_two_searches_that_choose_the_same_make_no_third_size(tmp_path):
    """Those of 7 and of 50 epochs choose the same rates: trainings of 250 epochs are of the latter."""
    write_journal(tmp_path, "table2")
    full = SHORT.at(SIZES["full"])
    finished = write_journal(tmp_path, "table2", full, leave_out=lambda trial: trial.seed == 2)
    assert names(finished) == ["short", "medium", "full"]
    # Of each of three cells a third of the results, for two draws and for one, and of two beyond the rates.
    wanted = ["18 of 54 final", "9 of 27 paper", "10 of 30 beyond"]
    lines = incomplete_lines(EXPERIMENTS["table2"], SHORT, finished)
    assert len(lines) == 8
    assert all(any(words in line for words in wanted) for line in lines)


def search_alone(folder, size):
    """A search in the journal that chooses another rate than the others for VS, as a longer one may."""
    own = SHORT.at(size_of(size))
    finished = write_journal(folder, "table2", own, leave_out=lambda trial: trial.role != "search")
    changed = [
        {**record, "curve": {**record["curve"], "validation_roc_auc": [1 - record["trial"]["lr"]]}}
        for record in finished.values()
        if record["trial"]["epochs"] == own.size.search_epochs and record["trial"]["method"] == "VS"
    ]
    add_records(journal_path(folder / "deep", "table2", "cifar10"), changed)
    return finished | {NetTrial.from_dict(record["trial"]).key: record for record in changed}


def test_results_are_of_the_search_that_chose_their_settings(tmp_path):
    """The longer one has chosen all but those of VS, too, for results that nobody has begun."""
    write_journal(tmp_path, "table2", OWN)
    finished = search_alone(tmp_path, "20,40")
    assert names(finished) == ["short", "medium", "full", "8,16", "20,20"]
    assert incomplete_lines(EXPERIMENTS["table2"], SHORT, finished) == []
    csv, *_ = tables("table2", tmp_path, tell=(told := []).append)
    assert {row["size"] for row in rows_of(csv)} == {"8,16"}
    assert told == []
    # Once both searches have results of one length, both sizes are there, the second begun.
    longer = SHORT.at(size_of("20,16"))
    finished = write_journal(tmp_path, "table2", longer, leave_out=lambda trial: trial.rho > 0.01)
    assert names(finished) == ["short", "medium", "full", "8,16", "20,16"]
    finished = write_journal(tmp_path, "table2", longer, leave_out=lambda trial: trial.seed == 2)
    lines = [f"halves, rho {rho}: 2 of 54 final trainings of 16 epochs" for rho in ("0.05", "0.1")]
    assert incomplete_lines(EXPERIMENTS["table2"], SHORT, finished) == lines


def test_results_whose_search_was_lost_are_not_those_of_another(tmp_path):
    write_journal(tmp_path, "table2")
    finished = search_alone(tmp_path, "20,40")
    assert names(finished) == ["short", "medium", "full", "20,20"]
    lost = next(key for key, record in finished.items() if record["trial"]["role"] == "search")
    del finished[lost]
    assert names(finished) == ["short", "medium", "full", "20,20"]
    lines = ["halves, rho 0.01: 1 of 90 search trainings of 7 epochs"]
    assert incomplete_lines(EXPERIMENTS["table2"], SHORT, finished) == lines


def test_a_search_without_a_result_is_begun(tmp_path):
    finished = write_journal(
        tmp_path, "table2", OWN, leave_out=lambda trial: trial.role != "search" or trial.method == "VS"
    )
    assert names(finished) == ["short", "medium", "full", "8,8"]
    lines = incomplete_lines(EXPERIMENTS["table2"], SHORT, finished)
    assert lines[0] == "halves, rho 0.01: 12 of 90 search trainings of 8 epochs"
    assert len(lines) == 3
    with pytest.raises(
        ValueError, match=r"no results of nets .*incomplete, .*Table 2, halves, rho 0\.01: 12 of 90"
    ):
        reproduce("overview", tmp_path)
