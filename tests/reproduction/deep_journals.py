"""Journals of the paper's experiments with records whose numbers are known."""

from __future__ import annotations

import csv

from deep_records import record
from reproduction import reproduce
from reproduction.experiments.net_trial import Setup
from reproduction.experiments.trials import EXPERIMENTS, cell_trials
from reproduction.training_records import add_records, journal_path, read_records

SHORT = Setup()


def write_journal(folder, name, setup=SHORT, *, base=0.7, leave_out=lambda trial: False, **facts):
    """A journal with all trials of an experiment at one size, but those left out; `facts` are of each."""
    experiment, finished, added = EXPERIMENTS[name], {}, []
    journal = journal_path(folder / "deep", name, setup.dataset)
    if journal.exists():
        finished.update(read_records(journal))
    for cell in experiment.cells:
        for _ in range(2):  # the second time the final trials are known
            new = {}
            for trials in cell_trials(experiment, cell, setup, finished).values():
                new |= {
                    trial.key: {**record(trial, base), **facts}
                    for trial in trials
                    if trial.key not in finished and not leave_out(trial)
                }
            finished |= new
            added += new.values()
    # Once, since every addition reads what there is.
    add_records(journal, added)
    return read_records(journal)


def tables(name, folder, *given, **options):
    """Write the tables without the figures, whose drawing takes longer than all else."""
    return reproduce(name, folder, *given, figures=False, **options)


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def one(rows, **wanted):
    (found,) = [row for row in rows if all(row[key] == str(value) for key, value in wanted.items())]
    return found
