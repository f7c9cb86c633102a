"""Commands that cannot do their work: one sentence and status 1, no crash, no wait, nothing half written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

ROWS = 600


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    y = (np.arange(ROWS) % 12 == 0).astype(int)
    return pa.table({"a": random.normal(size=ROWS) + 2 * y, "b": random.normal(size=ROWS), "label": y})


@pytest.fixture(scope="module")
def data(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "table.parquet"
    pa.parquet.write_table(table, path)
    return path


@pytest.fixture(scope="module")
def fitted(data):
    done = run(*fit(data), "--out", str(data.parent / "run"))
    assert done.returncode == 0, done.stderr
    return data.parent / "run"


def fit(data, families="linear"):
    asked = ["--target", "label", "--fpr", "0.05", "--trials", "1", "--families", families, "--jobs", "1"]
    return ["fit", str(data), *asked, "--quiet"]


def run(*arguments, limits=(), stdout=subprocess.PIPE, timeout=120, **environment):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for what, most in limits:
            resource.setrlimit(what, (most, most))

    return subprocess.run(
        [sys.executable, "-m", "raresight", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=timeout,
        preexec_fn=limit,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", **environment},
    )


def refusal(done):
    """The one sentence of a command that refused."""
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "did not foresee" not in errors[0]
    return errors[0]


# ---- the last catch ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("OverflowError('cannot convert float infinity to integer')", "stopped for a reason"),
        ("KeyError('x')", "stopped for a reason"),
        ("MemoryError()", "memory ran out"),
        ("RecursionError('maximum recursion depth exceeded')", "stopped for a reason"),
        ("__import__('pyarrow').ArrowIndexError('Index 9999999 out of bounds')", "stopped for a reason"),
        ("__import__('duckdb').InternalException('INTERNAL')", "stopped for a reason"),
        ("BaseException('a panic')", "stopped for a reason"),
        ("UnicodeDecodeError('utf-16-le', b'*', 0, 1, 'truncated data')", "stopped for a reason"),
        ("OSError(28, 'No space left on device', 'x.csv')", "x.csv: no space left on device"),
        ("OSError(28, 'No space left on device')", "the output: no space left on device"),
        ("ImportError('libx.so: failed to map segment', name='x')", "the library x cannot be loaded: memory"),
        ("ImportError('no such symbol', name='x')", "the library x cannot be loaded: install"),
    ],
)
def test_whatever_is_raised_is_one_sentence(tmp_path, raised, said):
    (tmp_path / "wild.py").write_text(
        "import sys, raresight.cli, raresight.report.loss_tables as tables\n"
        f"def wild(*_):\n    raise {raised}\n"
        "tables.loss_rows = wild\n"
        "sys.argv = ['raresight', 'losses', 'tbl', '--json', *sys.argv[1:]]\nraresight.cli.main()\n"
    )
    script = [sys.executable, str(tmp_path / "wild.py")]
    told = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr.count("\n")) == (1, "", 1)
    assert told.stderr.startswith("error: ")
    assert said in told.stderr
    debug = subprocess.run([*script, "--debug"], capture_output=True, text=True, check=False)
    assert debug.returncode == 1
    assert "Traceback" in debug.stderr


@pytest.mark.parametrize(
    "spoiled", ["cli.Console.print = wild", "cli._sentence = wild", "cli.Console = cli.escape = wild"]
)
def test_the_last_catch_needs_no_memory(tmp_path, spoiled):
    (tmp_path / "wild.py").write_text(
        "import sys, warnings, raresight.cli as cli, raresight.report.loss_tables as tables\n"
        "def wild(*_, **__):\n    raise MemoryError\n"
        "def short(*_):\n"
        f"    {spoiled}\n"
        "    wild()\n"
        "tables.loss_rows = short\n"
        "sys.argv = ['raresight', 'losses', 'tbl', '--json']\ncli.main()\n"
    )
    script = [sys.executable, str(tmp_path / "wild.py")]
    told = subprocess.run(script, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith("error: memory ran out")
    assert told.stderr.count("\n") == 1


def test_a_sentence_of_a_worker_is_told(tmp_path):
    (tmp_path / "wild.py").write_text(
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from raresight.common.checks import check_whole\n"
        "from raresight.cli import _is_ours\n"
        "import numpy\n"
        "if __name__ == '__main__':\n"
        "    with ProcessPoolExecutor(1) as pool:\n"
        "        print(_is_ours(pool.submit(check_whole, 0, 'trials').exception()))\n"
        "        print(_is_ours(pool.submit(numpy.concatenate, []).exception()))\n"
    )
    told = subprocess.run(
        [sys.executable, str(tmp_path / "wild.py")], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["True", "False"]


def test_a_damaged_file_is_named_without_a_library_s_words(tmp_path):
    (tmp_path / "t.csv").write_bytes("a,label\n1,0\n".encode("utf-16")[:-1])
    assert "t.csv is UTF-16 text that is damaged" in refusal(run(*fit(tmp_path / "t.csv")))
    (tmp_path / "t\n[red]\x1b[31m.csv").write_bytes(b"\x00\x01")
    told = refusal(run(*fit(tmp_path / "t\n[red]\x1b[31m.csv")))
    assert r"t\n[red]\x1b[31m.csv is a binary file" in told


@pytest.mark.parametrize("option", ["--fpr", "--max-fpr"])
@pytest.mark.parametrize("rate", ["1e-320", "1e-10", "0", "1", "nan", "-inf"])
def test_rates_that_no_table_can_measure(data, option, rate):
    told = refusal(run("fit", str(data), "--target", "label", f"{option}={rate}"))
    assert "must be at least 1e-09 and below 1, but is" in told


def test_an_error_about_a_long_option_is_short(data):
    told = refusal(run(*fit(data), "--losses", "x" * 50_000))
    assert len(told) < 900
    assert "unknown loss" in told.lower() or "x" * 100 in told


# ---- whole or not there ------------------------------------------------------------------------


@pytest.mark.parametrize("room", [300, 3_000, 300_000])
def test_a_fit_on_a_full_disk_names_the_path_and_leaves_nothing_torn(data, tmp_path, room):
    out = tmp_path / "out"
    told = refusal(run(*fit(data), "--out", str(out), limits=[(resource.RLIMIT_FSIZE, room)]))
    assert str(out) in told
    for path in out.rglob("*"):
        assert "unfinished" not in path.name
    assert not (out / "report.html").exists()


@pytest.mark.parametrize("name", ["s.csv", "s.parquet", "s.arrow"])
def test_scores_on_a_full_disk(fitted, data, tmp_path, name):
    out = tmp_path / name
    asked = ("score", str(fitted), str(data), "--out", str(out), "--quiet")
    told = refusal(run(*asked, limits=[(resource.RLIMIT_FSIZE, 2000)]))
    assert told == f"error: {out}: file too large"
    assert os.listdir(tmp_path) == []


def test_pages_and_pictures_on_a_full_disk(tmp_path):
    limits = [(resource.RLIMIT_FSIZE, 2000)]
    page, picture = tmp_path / "page.html", tmp_path / "losses.png"
    assert refusal(run("analyze", "tbl", "--html", str(page), limits=limits)).startswith(f"error: {page}")
    picture_told = refusal(
        run("losses", "--plot", str(picture), limits=limits, MPLCONFIGDIR=str(tmp_path.parent))
    )
    assert picture_told.startswith(f"error: {picture}")
    assert os.listdir(tmp_path) == []


def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        done = run("losses", stdout=full)
    assert refusal(done) == "error: the output: no space left on device"
    assert done.stderr.count("\n") == 1


def test_a_killed_score_leaves_nothing_for_ever(fitted, data, tmp_path):
    (tmp_path / ".s.csv.999999999.unfinished").write_text("half")
    done = run("score", str(fitted), str(data), "--out", str(tmp_path / "s.csv"), "--quiet")
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["s.csv"]


# ---- hangs -------------------------------------------------------------------------------------


def test_pipes_are_refused_wherever_a_file_is_read(fitted, data, tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    parts = tmp_path / "parts"
    parts.mkdir()
    os.link(pipe, parts / "b.csv")
    for asked in (
        fit(pipe),
        fit(parts),
        [*fit(data), "--test", str(pipe), "--out", str(tmp_path / "out")],
        ["score", str(fitted), str(pipe), "--out", str(tmp_path / "s.csv")],
        ["score", str(fitted), str(data), "--out", str(pipe)],
        ["analyze", "tbl", "--scores", str(pipe)],
        ["analyze", "tbl", "--html", str(pipe)],
    ):
        assert "is not a regular file but a pipe" in refusal(run(*asked, timeout=60))
    assert pipe.is_fifo()


def test_a_run_with_a_pipe_in_it_is_not_continued(data, tmp_path):
    (tmp_path / "search").mkdir()
    (tmp_path / "run.json").write_text("{}")
    os.mkfifo(tmp_path / "search" / "trials.jsonl")
    told = refusal(run(*fit(data), "--out", str(tmp_path), "--resume", timeout=60))
    assert "trials.jsonl is not a regular file but a pipe" in told


@pytest.mark.parametrize("kilobytes", [200_000, 600_000, 1_150_000, 1_250_000])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_fit_with_little_memory_ends(data, tmp_path, kilobytes, jobs):
    limits = [(resource.RLIMIT_AS, kilobytes * 1024)]
    done = run(*fit(data), "--jobs", jobs, "--out", str(tmp_path / "out"), limits=limits, timeout=120)
    if done.returncode:
        told = refusal(done)
        assert "memory" in told
    else:
        assert kilobytes > 10**6


def test_scoring_with_little_memory_ends(fitted, data, tmp_path):
    limits = [(resource.RLIMIT_AS, 600_000 * 1024)]
    done = run("score", str(fitted), str(data), "--out", str(tmp_path / "s.csv"), limits=limits)
    assert "scoring needs 1024 MB more memory" in refusal(done)


@pytest.mark.parametrize("kilobytes", [100_000, 150_000, 400_000])
def test_every_command_asks_for_memory_before_it_loads_libraries(tmp_path, kilobytes):
    limits = [(resource.RLIMIT_AS, kilobytes * 1024)]
    nowhere = str(tmp_path)
    models = (["show", nowhere], ["show", nowhere, "--json"], ["sign", nowhere])
    for asked in (*models, ["losses"], ["analyze", "tbl"]):
        assert "MB more memory than this process may use" in refusal(run(*asked, limits=limits, timeout=30))


@pytest.mark.parametrize("inner", ["", "out", "a/b"])
def test_results_never_go_into_the_folder_of_the_data(table, tmp_path, inner):
    parts = tmp_path / "parts"
    parts.mkdir()
    pa.parquet.write_table(table, parts / "a.parquet")
    told = refusal(run(*fit(parts), "--out", str(parts / inner)))
    assert "is in the folder of the data" in told
    assert os.listdir(parts) == ["a.parquet"]
    told = refusal(run(*fit(parts / "a.parquet"), "--test", str(parts), "--out", str(parts / inner)))
    assert "is in the folder of the data" in told


def test_scores_never_take_the_place_of_what_is_read(fitted, data, tmp_path):
    twin = tmp_path / "twin.parquet"
    os.link(data, twin)
    for out in (data, twin):
        told = refusal(run("score", str(fitted), str(data), "--out", str(out)))
        assert "would overwrite or join the rows" in told
    for out in (fitted / "model" / "s.csv", fitted / "model" / "member-1" / "s.csv"):
        assert "is in the folder of a model" in refusal(
            run("score", str(fitted), str(data), "--out", str(out))
        )
    (tmp_path / "s.csv").write_text("y,score\n1,2\n0,1\n")
    asked = ("analyze", "tbl", "--scores", str(tmp_path / "s.csv"), "--html", str(tmp_path / "s.csv"))
    assert "would overwrite the scores" in refusal(run(*asked))
