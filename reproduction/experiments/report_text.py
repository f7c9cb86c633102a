"""Format numbers, settings, cells, nets and devices of the experiments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..estimates import Estimate, effect_on, mark
from ..paper_numbers import Printed
from ..training_records import Record
from .budget import published_rows
from .methods import REFERENCE, Chosen
from .net_trial import DATASETS, NetTrial, Setup, format_net, format_parameters
from .results import Result, distance_to_printed, search_records
from .trials import PAPER_EPOCHS

# ---- Numbers and settings ----------------------------------------------------------------------------------

_EVERY = "every epoch"


CHOSEN_BY = {"roc_auc": "AUC", "accuracy_linked": "accuracy after the link"}
"""Names of the metrics that choose settings."""


@dataclass(frozen=True)
class ReportColumn:
    """A column of a table: a metric at an epoch of `WHEN`, optionally with the difference to CE+LA."""

    title: str
    metric: str
    when: str = "last"
    is_compared: bool = False

    @property
    def full_title(self) -> str:
        """The title with the epoch. Tables whose columns all have the last epoch leave it out."""
        return self.title if "epoch" in self.title else f"{self.title}, last epoch"


def printed_cells(printed: Printed | None, ours: Estimate, metric: str) -> list[str]:
    """Format the paper's number, and the difference of ours to it; both empty if it prints none."""
    if printed is None:
        return ["", ""]
    text, words = number(metric, printed.mean), format_standard_errors(ours, printed)
    if printed.deviation is None:
        gap = number(metric, ours.mean - printed.mean, sign=True)
        return [text, f"{gap} ({words})" if words else gap]
    return [f"{text} ± {number(metric, printed.deviation)}", words]


def format_standard_errors(ours: Estimate, printed: Printed) -> str:
    """Format the difference of ours to the paper's in standard errors; empty if these are unknown.

    If the paper prints no deviation, the standard error is that of ours alone, and the text says so.
    """
    errors = distance_to_printed(ours, printed)
    if math.isnan(errors):
        return ""
    return f"{errors:+.1f} SE{' of ours' if printed.deviation is None else ''}"


def cell_text(result: Result, method: str, column: ReportColumn) -> str:
    """Format a mean, and for compared columns the difference to CE+LA with its interval."""
    text = number(column.metric, result.mean(method, column.metric, column.when).mean)
    if not column.is_compared or method == REFERENCE:
        return text
    gap = result.difference(method, REFERENCE, column.metric, column.when)
    return f"{text} ({difference_text(gap, column.metric)})"


def difference_text(gap: Estimate, metric: str, *, bold: bool = True) -> str:
    """Format a difference with its interval, bold if it counts as a gain or a loss."""
    shown, low, high = (number(metric, x, sign=True) for x in (gap.mean, gap.low, gap.high))
    stars = mark(metric, gap.mean, gap.low, gap.high) if bold else ""
    return f"{stars}{shown}{stars} [{low}, {high}]{format_draws(gap, metric)}"


def format_draws(gap: Estimate, metric: str) -> str:
    """Format the difference of each draw if the draws differ; else return an empty text."""
    if not gap.draws_differ:
        return ""
    return f"; by draw {', '.join(number(metric, mean, sign=True) for mean in gap.by_draw)}"


def number(metric: str, value: float, *, sign: bool = False) -> str:
    """Format a metric: in per cent, or a Brier score as it is.

    >>> number("roc_auc", 0.8541), number("brier_linked", 0.1), number("accuracy", -0.01, sign=True)
    ('85.41', '0.100', '-1.00')
    """
    if math.isnan(value):
        return "-"
    digits = f"{'+' if sign else ''}.{3 if 'brier' in metric else 2}f"
    return format(value if "brier" in metric else 100 * value, digits)


VERDICTS = {"gain": "confirmed", "loss": "contradicted", "small": "small", "chance": "inconclusive"}
"""Verdicts on a claimed improvement, by `effect_on`."""


def claim_verdict(gap: Estimate, metric: str) -> str:
    """Return the verdict on a claimed improvement: "confirmed", "contradicted", "small" or "inconclusive".

    "small" is beyond chance, but too small to act on. If the draws of the task differ, the verdict says so.
    """
    found = VERDICTS[effect_on(metric, gap.mean, gap.low, gap.high)]
    return f"{found}, but the draws differ" if gap.draws_differ else found


def settings_name(role: str) -> str:
    """Return the name of the settings of a role."""
    names = {
        "final": "chosen on validation",
        "paper": "paper's setting",
        "beyond": "beyond the rates chosen from",
    }
    return names.get(role, role)


def format_setting(chosen: Chosen) -> str:
    """Format the parameters and the learning rate of a choice."""
    return f"{format_parameters(chosen.parameters)} lr={chosen.lr:g}".strip()


def format_method(result: Result, method: str) -> str:
    """Format a method, with the number of its trainings that were not finite."""
    failed = result.failed(method)
    return f"{method} ({failed} not finite)" if failed else method


def cell_title(result: Result) -> str:
    """Format the cell and the length of a result."""
    return f"{result.cell} ({format_length(result)})"


def format_length(result: Result) -> str:
    """Format the length of trainings in relation to the paper's."""
    if result.epochs == PAPER_EPOCHS:
        return "full length"
    if result.epochs > PAPER_EPOCHS:
        return f"lengthened, {result.epochs} epochs for {PAPER_EPOCHS}"
    return f"shortened, {result.epochs} of {PAPER_EPOCHS} epochs"


def format_evaluated_epochs(results: Sequence[Result]) -> str:
    """Format the epochs after which the nets of each length were evaluated."""
    evaluated: dict[int, dict[str, None]] = {}
    for result in results:
        evaluated.setdefault(result.epochs, {})[_evaluated_epochs(result)] = None
    if all(list(words) == [_EVERY] for words in evaluated.values()):
        return f"Nets are evaluated after {_EVERY}."
    parts = [
        f"nets{f' of {epochs} epochs' if len(evaluated) > 1 else ''} are evaluated after "
        f"{'; of others after '.join(words)}"
        for epochs, words in evaluated.items()
    ]
    return f"N{'; '.join(parts)[1:]}: a best epoch is the best of these."


def _evaluated_epochs(result: Result) -> str:
    epochs = next(iter(result.records.values()))[0]["curve"]["epoch"]
    is_every = epochs == list(range(1, result.epochs + 1))
    return _EVERY if is_every else f"epochs {', '.join(map(str, epochs))}"


# ---- Nets, image sets and devices --------------------------------------------------------------------------


def records_of(results: Iterable[Result]) -> list[Record]:
    """Return the records of all methods."""
    return [record for result in results for records in result.records.values() for record in records]


def format_origin(setup: Setup, results: Sequence[Result], finished: Mapping[str, Record]) -> str:
    """Format the first paragraph of a page: nets, image set and devices of all its numbers."""
    records = records_of(results)
    searches = [
        record for result in results if result.role == "final" for record in search_records(result, finished)
    ]
    nets, sets = setup.net, _format_dataset(setup, records)
    sentences = [f"Nets are {nets} on {sets}, trained on {format_devices(records)}."]
    if searches and set(_places(searches)) != set(_places(records)):
        sentences.append(f"Those of the search, which chose settings, on {format_devices(searches)}.")
    images = Counter(record["images"] for record in (*records, *searches) if record.get("images"))
    if len(images) > 1:
        counts = ", ".join(f"{count} nets" for count in images.values())
        sentences.append(
            f"They are of {len(images)} different sets of images ({counts}), which cannot be compared."
        )
    return " ".join(sentences)


def _format_dataset(setup: Setup, records: Sequence[Record]) -> str:
    title, parts = DATASETS[setup.dataset].title, sum(map(_is_of_a_part, records))
    if not parts:
        return title
    return f"a part of {title}" if parts == len(records) else f"{title} ({parts} of them on a part of it)"


def _is_of_a_part(record: Record) -> bool:
    """Return whether a net had fewer training rows than the published set has, beyond rounding."""
    rows = published_rows(NetTrial.from_dict(record["trial"]))["training"]
    return bool(abs(sum(record["class_counts"]) - rows) > 0.01 * rows)


def format_devices(records: Iterable[Record]) -> str:
    """Format devices and precisions, with the number of nets on each if there are several.

    >>> gpu, cpu = {"device": "H200", "precision": "bf16"}, {"device": "x86_64", "precision": "float32"}
    >>> format_devices([gpu]), format_devices([cpu, gpu, gpu])
    ('H200, bf16', 'H200, bf16 (2 nets) and x86_64, float32 (1 net)')
    """
    found = _places(records)
    if len(found) == 1:
        return next(iter(found))
    return " and ".join(
        f"{place} ({count} {'net' if count == 1 else 'nets'})" for place, count in found.most_common()
    )


def device_lines(
    result: Result,
    shown: Iterable[Result],
    name: Callable[[Record], str] = lambda record: str(record["trial"]["method"]),
) -> list[str]:
    """Format where the nets of a table were trained; no lines if the whole page has one device."""
    if len(_places(records_of(shown))) < 2:
        return []
    records = records_of([result])
    most, *others = (place for place, _ in _places(records).most_common())
    if not others:
        return [f"Trained on {most}.", ""]
    of_name = Counter(map(name, records))
    parts = []
    for place in others:
        counts = Counter(name(record) for record in records if _place(record) == place)
        listed = ", ".join(f"{one} ({count} of {of_name[one]})" for one, count in counts.items())
        parts.append(f"{place}: {listed}")
    return [f"Trained on {'; on '.join(parts)}; the others on {most}.", ""]


def format_other_nets(name: str, setup: Setup, finished: Mapping[str, Record]) -> str:
    """Format which other nets the journal has, and the command that shows them; empty if there are none."""
    trials = [record["trial"] for record in finished.values() if not setup.has(record["trial"])]
    counts = Counter((trial["depth"], trial["width"]) for trial in trials)
    return " ".join(
        f"There are also {count} trainings of {format_net(depth, width)}, which are not shown here: "
        f"python -m reproduction {name} --depth {depth} --width {width} shows them."
        for (depth, width), count in sorted(counts.items())
    )


def _places(records: Iterable[Record]) -> Counter[str]:
    return Counter(map(_place, records))


def _place(record: Record) -> str:
    return f"{record['device']}, {record['precision']}"
