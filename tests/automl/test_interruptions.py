"""Real processes, killed at random moments and run again: the outcome is that of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from table_search import TRIALS, facts, small_space, small_task

from raresight.automl.options import Options
from raresight.automl.records import Limits
from raresight.automl.run_identity import open_run
from raresight.automl.search import search
from raresight.common.journal import DamagedFileWarning

PROGRAM = Path(__file__).with_name("table_search.py")


def start(folder, *options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "random"}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def heard_lines(process, count):
    """Read lines of progress; False where the process ended before."""
    return all(process.stdout.readline() for _ in range(count))


def children_of(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not path.exists():
        pytest.skip("the system does not list child processes")
    return [int(child) for child in path.read_text().split()]


def outcome(folder):
    written = json.loads((folder / "facts.json").read_text())
    stopped_by = written.pop("stopped_by")
    return stopped_by, written


def killed_and_resumed(folder, kills, draws, *options):
    """Kill the program up to `kills` times, at least six, at moments of `draws`; then let it end."""
    for killed in range(kills):
        process = start(folder, *options)
        if not heard_lines(process, draws.randint(1, 4)):
            assert killed >= 6, "it ended before it could be killed"
            process.communicate()
            break
        time.sleep(draws.random() * 0.15)
        process.kill()
        process.communicate()
    process = start(folder, *options)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 0, errors
    return outcome(folder)


def test_killed_at_random_moments(whole, tmp_path):
    assert killed_and_resumed(tmp_path, 3, random.Random(0)) == ("trials", whole[0])


@pytest.mark.slow  # the command is killed with two jobs in tests/automl, too
def test_killed_with_two_jobs(whole, tmp_path):
    process = start(tmp_path, "--jobs", "2")
    assert heard_lines(process, 5)
    workers = children_of(process.pid)
    assert len(workers) >= 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    found = search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path / "search")
    assert facts(found) == whole[0]
    left = {path.name for path in (tmp_path / "search").iterdir()}
    assert left == {"trials.jsonl", "lock", "scores", "search.json"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_killed_many_times(whole, tmp_path, seed):
    jobs = ["--jobs", "2"] if seed % 2 else []
    assert killed_and_resumed(tmp_path, 10, random.Random(seed), *jobs) == ("trials", whole[0])


def test_every_cut_of_the_journal_is_survived(whole, tmp_path):
    draws = random.Random(3)
    content = (whole[1] / "trials.jsonl").read_bytes()
    for number in range(4):
        folder = tmp_path / str(number)
        shutil.copytree(whole[1], folder)
        cut = draws.randrange(len(content) // 4, len(content))
        (folder / "trials.jsonl").write_bytes(content[:cut])
        found = search(small_task(), small_space(), Limits(TRIALS), folder=folder)
        assert facts(found) == whole[0]


def resumed(folder):
    """The outcome of a search continued in a folder, and its warnings about damaged files."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamagedFileWarning)
        found = search(small_task(), small_space(), Limits(TRIALS), folder=folder)
    told = [str(one.message) for one in caught if issubclass(one.category, DamagedFileWarning)]
    return facts(found), told


def cut_line(lines):
    return 5, [*lines[:4], lines[4][:10] + b"\n", *lines[5:]]


def changed_digit(lines):
    """A better result of some trial: without a check it would win."""
    place = next(i for i, line in enumerate(lines) if i > 5 and b'"values": [0.' in line)
    return place + 1, [*lines[:place], lines[place].replace(b"[0.", b"[9."), *lines[place + 1 :]]


def missing_line(lines):
    return 10, [*lines[:9], *lines[10:]]


def first_line_lost(lines):
    return 1, lines[1:]


@pytest.mark.parametrize("damage", [cut_line, changed_digit, missing_line, first_line_lost])
def test_a_damaged_journal_is_set_aside_and_its_trials_repeated(whole, tmp_path, damage):
    folder = tmp_path / "search"
    shutil.copytree(whole[1], folder)
    path = folder / "trials.jsonl"
    whole_lines = path.read_bytes().splitlines(keepends=True)
    number, lines = damage(whole_lines)
    path.write_bytes(b"".join(lines))
    found, (told,) = resumed(folder)
    assert found == whole[0]
    assert f"trials.jsonl is damaged at line {number}" in told
    assert (folder / "trials.damaged-1.jsonl").read_bytes() == b"".join(lines[number - 1 :])
    assert path.read_bytes().startswith(b"".join(lines[: number - 1]))
    assert resumed(folder) == (whole[0], [])


def flipped(content):
    return content[:-7] + bytes([content[-7] ^ 1]) + content[-6:]


@pytest.mark.parametrize("seconds", [None, 1e-3])
@pytest.mark.parametrize("damage", [flipped, lambda content: content[:-9], lambda content: b"", None])
def test_a_trial_with_damaged_scores_runs_again(whole, tmp_path, damage, seconds):
    folder = tmp_path / "search"
    shutil.copytree(whole[1], folder)
    paths = [folder / "scores" / f"{whole[0]['best']}.npy", folder / "scores" / "0.npy"]
    for path in paths:
        path.write_bytes(damage(path.read_bytes())) if damage else path.unlink()
    with pytest.warns(DamagedFileWarning, match=r"\.npy was .* since it was written") as caught:
        # Time that was spent on them once does not count again.
        found = search(small_task(), small_space(), Limits(TRIALS, seconds), folder=folder)
    assert len([one for one in caught if one.category is DamagedFileWarning]) == 2
    assert facts(found) == whole[0]
    assert resumed(folder) == (whole[0], [])
    # Between the search and its outcome there is no second chance: it is said what helps.
    paths[0].write_bytes(flipped(paths[0].read_bytes()))
    with pytest.raises(ValueError, match=r"\.npy is not the file that was written.*--resume"):
        found.out_of_fold(found.best.number)


def test_a_damaged_identity_is_named_and_said_to_be_damaged(whole, tmp_path):
    folder = tmp_path / "search"
    shutil.copytree(whole[1], folder)
    path = folder / "search.json"
    content = path.read_bytes()
    for spoiled in (content[:-9], b"", b"[1]", b"[" * 10000, content.replace(b'"seed": 0', b'"seed": 1')):
        path.write_bytes(spoiled)
        with pytest.raises(ValueError, match=r"search\.json is damaged.*Take another folder, or remove"):
            search(small_task(), small_space(), Limits(TRIALS), folder=folder)


def test_a_damaged_record_of_a_run_is_named_and_said_to_be_damaged(tmp_path):
    options = Options(target="y", trials=1, jobs=1)
    open_run(tmp_path, options, "abc", resume=False)
    open_run(tmp_path, options, "abc", resume=True)
    path = tmp_path / "run.json"
    content = path.read_bytes()
    for spoiled in (
        content[:-9],
        b"",
        b"[1]",
        b"[" * 10000,
        content.replace(b'"data": "abc"', b'"data": "abd"'),
        content.replace(b'"asked"', b'"bsked"'),
        b"\xff" + content,
    ):
        path.write_bytes(spoiled)
        with pytest.raises(ValueError, match=r"run\.json is damaged.*another folder by --out"):
            open_run(tmp_path, options, "abc", resume=True)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_keeps_what_is_finished(whole, tmp_path, jobs):
    process = start(tmp_path, "--jobs", jobs)
    while int(process.stdout.readline()) < 4:
        pass
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers hear it, too
    errors = process.communicate(timeout=60)[1]
    assert errors == ""
    assert process.returncode == 0
    stopped_by, found = outcome(tmp_path)
    assert stopped_by == "interrupted"
    assert 4 <= len(found["trials"]) < TRIALS
    kept = {trial["number"]: trial for trial in found["trials"]}
    assert all(kept[number] == whole[0]["trials"][number] for number in kept)
    again = search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path / "search")
    assert facts(again) == whole[0]


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_ctrl_c_before_anything_is_finished(tmp_path, jobs):
    process = start(tmp_path, "--jobs", jobs)
    assert process.stdout.readline() == "0\n"
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1  # the program's own
    assert errors.endswith("KeyboardInterrupt\n")
    assert not list((tmp_path / "search").glob("arrays-*"))


def test_the_second_ctrl_c_kills(tmp_path):
    code = (
        "import os, signal, time\n"
        "from raresight.engines import Interrupts\n"
        "with Interrupts() as interrupts:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    assert interrupts.seen\n"
        "    print('once', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(30)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (-signal.SIGINT, "once\n", "")


def test_a_second_process_is_refused(tmp_path):
    process = start(tmp_path)
    assert heard_lines(process, 1)
    try:
        with pytest.raises(RuntimeError, match="another process is searching in"):
            search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path / "search")
    finally:
        process.kill()
        process.communicate()


def test_outside_the_main_thread(tmp_path):
    found = []

    def work():
        found.append(search(small_task(), small_space(), Limits(2), folder=tmp_path))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=60)
    assert len(found[0].trials) == 2
