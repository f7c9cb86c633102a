"""Pages of nets say which net, which images and which device their numbers are from."""

from __future__ import annotations

import pytest

from deep_journals import SHORT, one, rows_of, tables, write_journal
from reproduction import reproduce
from reproduction.experiments.net_trial import Setup
from reproduction.experiments.report_text import format_origin, format_other_nets
from reproduction.experiments.results import find_results
from reproduction.experiments.trials import EXPERIMENTS
from reproduction.training_records import add_records, journal_path

SMALL = Setup(depth=8, width=4)
CPU = {"device": "x86_64", "precision": "float32"}


def rewritten(folder, name, finished, change):
    """The journal with some of its records changed."""
    journal = journal_path(folder / "deep", name, "cifar10")
    journal.unlink()
    add_records(journal, [{**record, **change(record["trial"])} for record in finished.values()])


def test_a_page_names_net_images_and_device(tmp_path):
    write_journal(tmp_path, "table2")
    write_journal(tmp_path, "ablation-c")
    words = "Nets are ResNet-32 on CIFAR-10, trained on H200, bf16.\n"
    csv, page, judged, *_ = tables("table2", tmp_path)
    assert f"half of the categories rare\n\n{words}\n#### In one table" in page.read_text()
    assert f"against their rivals\n\n{words}\n" in judged.read_text()
    # Where all are from one place it is said once.
    assert "Trained on H200, bf16.\n" not in page.read_text()
    assert {(row["dataset"], row["depth"], row["width"]) for row in rows_of(csv)} == {("cifar10", "32", "16")}
    for name in ("ablation-c", "overview"):
        (page,) = [path for path in reproduce(name, tmp_path) if path.suffix == ".md"]
        assert page.read_text(encoding="utf-8").startswith(f"{words}\n### ")


def test_pages_of_another_net_do_not_replace_those_of_the_papers(tmp_path):
    write_journal(tmp_path, "table2", SMALL)
    with pytest.raises(
        ValueError,
        match=r"no complete cell yet: .* --data FOLDER\. These are of ResNet-32\. There are also 513 "
        r"trainings of ResNet-8 of width 4, .* --depth 8 --width 4 shows them$",
    ):
        reproduce("table2", tmp_path)
    with pytest.raises(ValueError, match=r"there are no results .* There are also 513 trainings of ResNet-8"):
        reproduce("overview", tmp_path)
    write_journal(tmp_path, "table2", base=0.8)
    paths = tables("table2", tmp_path)
    assert {path.name.split(".")[0] for path in paths} == {"table2-cifar10", "table2-cifar10-verdicts"}
    before = {path: path.read_bytes() for path in paths}
    others = tables("table2", tmp_path, depth=8, width=4)
    name = "table2-cifar10-resnet8-width4"
    assert {path.name.split(".")[0] for path in others} == {name, f"{name}-verdicts"}
    assert {path: path.read_bytes() for path in paths} == before
    assert "There are also 513 trainings of ResNet-8 of width 4" in paths[1].read_text()
    text = others[1].read_text()
    assert "Nets are ResNet-8 of width 4 on CIFAR-10" in text
    assert "There are also 513 trainings of ResNet-32, which are not shown here" in text
    wanted = {"rho": 0.01, "settings": "paper's setting", "method": "VS", "metric": "roc_auc", "when": "last"}
    assert [float(one(rows_of(found[0]), **wanted)["mean"]) for found in (paths, others)] == pytest.approx(
        [0.81, 0.71]
    )


def test_tables_say_which_of_their_nets_are_from_another_device(tmp_path):
    finished = write_journal(tmp_path, "table2")

    def change(trial):
        is_final = (trial["rho"], trial["role"], trial["seed"]) == (0.05, "final", 2)
        is_paper = (trial["rho"], trial["role"]) == (0.1, "paper")
        return CPU if is_paper or (is_final and trial["method"] in ("TBL", "VS")) else {}

    rewritten(tmp_path, "table2", finished, change)
    csv, page, *_ = tables("table2", tmp_path)
    text = page.read_text()
    assert (
        "on CIFAR-10, trained on H200, bf16 (212 nets) and x86_64, float32 (31 nets). Those of the search, "
        "which chose settings, on H200, bf16.\n"
    ) in text
    title = "**halves, rho {} (shortened, 14 of 250 epochs)**\n\n"
    mixed = "Trained on x86_64, float32: VS (2 of 6), TBL (2 of 6); the others on H200, bf16.\n\n|  |"
    assert text.count(title.format(0.05) + mixed) == 1
    assert text.count(title.format(0.05) + "Trained on H200, bf16.\n\n|") == 1
    assert text.count(title.format(0.1) + "Trained on H200, bf16.\n\n|") == 1
    assert text.count(title.format(0.1) + "Trained on x86_64, float32.\n\n|") == 1
    # Of the chosen settings alone.
    assert "Trained on H200, bf16 (158 nets) and x86_64, float32 (4 nets). The largest rate" in text
    wanted = {"settings": "chosen on validation", "rho": 0.05, "metric": "roc_auc", "when": "last"}
    row = one(rows_of(csv), **wanted, method="VS")
    assert (row["device"], row["precision"]) == ("H200 and x86_64", "bf16 and float32")
    overview = reproduce("overview", tmp_path)[0].read_text(encoding="utf-8")
    assert "trained on H200, bf16 (212 nets) and x86_64, float32 (31 nets)." in overview
    short = "shortened, 14 of 250 epochs"
    assert (
        f"| halves, rho 0.05 | {short}, 27 nets on H200, bf16 | {short}, 54 nets on H200, bf16 (50 nets) and "
        "x86_64, float32 (4 nets) |"
    ) in overview


def test_series_of_c_say_which_are_from_another_device(tmp_path):
    finished = write_journal(tmp_path, "ablation-c")

    def change(trial):
        is_wanted = (trial["method"], trial["lr"], trial["parameters"]["C"]) == ("TBL", 0.02, 0.3)
        return CPU if is_wanted and trial["seed"] == 0 else {}

    rewritten(tmp_path, "ablation-c", finished, change)
    text = tables("ablation-c", tmp_path)[1].read_text()
    words = "Trained on x86_64, float32: TBL at lr 0.02, C 0.3 (2 of 6); the others on H200, bf16.\n"
    assert text.count(words) == 1


def test_a_search_on_another_device_is_named(tmp_path):
    finished = write_journal(tmp_path, "table2")
    rewritten(tmp_path, "table2", finished, lambda trial: CPU if trial["role"] == "search" else {})
    text = tables("table2", tmp_path)[1].read_text()
    assert (
        "trained on H200, bf16. Those of the search, which chose settings, on x86_64, float32.\n\n####"
        in text
    )


def test_parts_of_a_set_and_other_images_are_named(tmp_path):
    experiment = EXPERIMENTS["table2"]
    finished = write_journal(tmp_path, "table2")

    def words(change):
        changed = {key: {**record, **change(record["trial"])} for key, record in finished.items()}
        return format_origin(SHORT, find_results(experiment, SHORT, changed, "paper"), changed)

    some = {"class_counts": [90, 10]}
    assert words(lambda trial: some).startswith("Nets are ResNet-32 on a part of CIFAR-10, trained")
    assert words(lambda trial: some if trial["rho"] == 0.1 else {}).startswith(
        "Nets are ResNet-32 on CIFAR-10 (27 of them on a part of it), trained on H200"
    )
    # The first journals do not say of which images they are.
    assert "images" not in words(lambda trial: {"images": "a"} if trial["rho"] == 0.1 else {})
    mixed = words(lambda trial: {"images": "a" if trial["rho"] == 0.1 else "b"})
    assert mixed.endswith(
        "They are of 2 different sets of images (54 nets, 27 nets), which cannot be compared."
    )


def test_the_nets_of_a_journal_are_told_apart_by_depth_and_by_width():
    def record(depth, width):
        return {"trial": {"dataset": "cifar10", "depth": depth, "width": width}}

    finished = dict(enumerate([record(32, 16), record(32, 4), record(8, 4), record(32, 4)]))
    said = format_other_nets("table2", SHORT, finished)
    assert said.count("There are also") == 2
    assert "1 trainings of ResNet-8 of width 4" in said
    assert "2 trainings of ResNet-32 of width 4" in said
    assert "python -m reproduction table2 --depth 32 --width 4 shows them." in said
    assert format_other_nets("table2", SHORT, {0: finished[0]}) == ""
