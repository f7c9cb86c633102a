"""Saving a model in another process, which is stopped at one of the steps that touch the folder."""

from __future__ import annotations

import errno
import os
import signal
import sys

from raresight.deep import DeepClassifier

# Every call of Python that opens, renames or removes a file is one of these.
EVENTS = ("open", "os.chmod", "os.remove", "os.rename")


def stop_at(step, folder, how):
    """Once so many of these calls were about the folder: a kill by the system, or a disk without space.

    Returns the calls as they come.
    """
    seen = []

    def count(event, args):
        if event in EVENTS and os.fspath(folder) in str(args[0]):
            seen.append(event)
            if len(seen) == step and how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if len(seen) == step:
                raise OSError(errno.ENOSPC, "no space left")

    # It cannot be taken away again: for a process of its own.
    sys.addaudithook(count)
    return seen


def save_until(source, folder, step, how):
    """Save the model of `source` over the one of `folder`, up to that step.

    Exit code 3 for a failure, 4 where the model is saved in spite of it.
    """
    model = DeepClassifier.load(source)
    seen = stop_at(step, folder, how)
    try:
        model.save(folder)
    except OSError:
        sys.exit(3)
    if len(seen) >= step:
        sys.exit(4)


def save_in_turn(sources, folder):
    """Save the models one after the other, without end."""
    models = [DeepClassifier.load(source) for source in sources]
    while True:
        for model in models:
            model.save(folder)
