"""How numbers, settings, cells, nets and devices of the experiments are written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..estimates import Estimate
from ..paper_numbers import Printed
from ..training_records import Record
from .methods import REFERENCE, Chosen
from .metrics import is_better
from .plan import published_rows
from .results import Result, apart, search_records
from .settings import DATASETS, NetTrial, Setup, net_words, parameter_words
from .trials import PAPER_EPOCHS

# ---- Numbers and settings ----------------------------------------------------------------------------------

_EVERY = "every epoch"


CHOSEN_BY = {"roc_auc": "AUC", "accuracy_linked": "accuracy after the link"}
"""The metrics by which settings are chosen, in words."""


@dataclass(frozen=True)
class ReportColumn:
    """A column of a table: a metric at an epoch of `WHEN`, and whether the difference to CE+LA is shown."""

    title: str
    metric: str
    when: str = "last"
    is_compared: bool = False

    @property
    def full_title(self) -> str:
        """The title with the epoch, which tables that have a column of the last one for each leave out."""
        return self.title if "epoch" in self.title else f"{self.title}, last epoch"


def printed_cells(printed: Printed | None, ours: Estimate, metric: str) -> list[str]:
    if printed is None:
        return ["", ""]
    text, words = number(metric, printed.mean), apart_words(ours, printed)
    if printed.deviation is None:
        gap = number(metric, ours.mean - printed.mean, sign=True)
        return [text, f"{gap} ({words})" if words else gap]
    return [f"{text} ± {number(metric, printed.deviation)}", words]


def apart_words(ours: Estimate, printed: Printed) -> str:
    """The standard errors between ours and the paper's, which are ours alone where it prints no deviation.

    Nothing where there is no error to measure by.
    """
    errors = apart(ours, printed)
    if math.isnan(errors):
        return ""
    return f"{errors:+.1f} SE{' of ours' if printed.deviation is None else ''}"


def cell_text(result: Result, method: str, column: ReportColumn) -> str:
    """A mean, and where it is compared the difference to CE+LA with its interval."""
    text = number(column.metric, result.mean(method, column.metric, column.when).mean)
    if not column.is_compared or method == REFERENCE:
        return text
    gap = result.difference(method, REFERENCE, column.metric, column.when)
    return f"{text} ({difference_text(gap, column.metric)})"


def difference_text(gap: Estimate, metric: str, *, bold: bool = True) -> str:
    """A difference with its interval, bold where that leaves out zero."""
    shown, low, high = (number(metric, x, sign=True) for x in (gap.mean, gap.low, gap.high))
    mark = "**" if bold and (gap.low > 0 or gap.high < 0) else ""
    return f"{mark}{shown}{mark} [{low}, {high}]{draws_words(gap, metric)}"


def draws_words(gap: Estimate, metric: str) -> str:
    """The difference of each draw, where they differ; else nothing."""
    if not gap.draws_differ:
        return ""
    return f"; by draw {', '.join(number(metric, mean, sign=True) for mean in gap.by_draw)}"


def number(metric: str, value: float, *, sign: bool = False) -> str:
    """A metric as it is shown: percent, or a Brier score.

    >>> number("roc_auc", 0.8541), number("brier_linked", 0.1), number("accuracy", -0.01, sign=True)
    ('85.41', '0.100', '-1.00')
    """
    if math.isnan(value):
        return "-"
    digits = f"{'+' if sign else ''}.{3 if 'brier' in metric else 2}f"
    return format(value if "brier" in metric else 100 * value, digits)


def claim_verdict(gap: Estimate, metric: str) -> str:
    """Whether a difference is an improvement: "confirmed", "contradicted" or "inconclusive".

    Where the draws of the task differ, it says so.
    """
    low, high = (gap.low, gap.high) if is_better(metric, 1.0, 0.0) else (-gap.high, -gap.low)
    found = "confirmed" if low > 0 else "contradicted" if high < 0 else "inconclusive"
    return f"{found}, but the draws differ" if gap.draws_differ else found


def settings_name(role: str) -> str:
    names = {
        "final": "chosen on validation",
        "paper": "paper's setting",
        "beyond": "beyond the rates chosen from",
    }
    return names.get(role, role)


def setting_words(chosen: Chosen) -> str:
    return f"{parameter_words(chosen.parameters)} lr={chosen.lr:g}".strip()


def method_words(result: Result, method: str) -> str:
    failed = result.failed(method)
    return f"{method} ({failed} not finite)" if failed else method


def cell_title(result: Result) -> str:
    return f"{result.cell} ({length_words(result)})"


def length_words(result: Result) -> str:
    if result.epochs == PAPER_EPOCHS:
        return "full length"
    if result.epochs > PAPER_EPOCHS:
        return f"lengthened, {result.epochs} epochs for {PAPER_EPOCHS}"
    return f"shortened, {result.epochs} of {PAPER_EPOCHS} epochs"


def epochs_words(results: Sequence[Result]) -> str:
    """After which epochs the nets of each length were judged."""
    judged: dict[int, dict[str, None]] = {}
    for result in results:
        judged.setdefault(result.epochs, {})[_judged_epochs(result)] = None
    if all(list(words) == [_EVERY] for words in judged.values()):
        return f"Nets are judged after {_EVERY}."
    parts = [
        f"nets{f' of {epochs} epochs' if len(judged) > 1 else ''} are judged after "
        f"{'; of others after '.join(words)}"
        for epochs, words in judged.items()
    ]
    return f"N{'; '.join(parts)[1:]}: a best epoch is the best of these."


def _judged_epochs(result: Result) -> str:
    epochs = next(iter(result.records.values()))[0]["curve"]["epoch"]
    is_every = epochs == list(range(1, result.epochs + 1))
    return _EVERY if is_every else f"epochs {', '.join(map(str, epochs))}"


# ---- Nets, image sets and devices --------------------------------------------------------------------------


def records_of(results: Iterable[Result]) -> list[Record]:
    """The records of all methods."""
    return [record for result in results for records in result.records.values() for record in records]


def origin_words(setup: Setup, results: Sequence[Result], finished: Mapping[str, Record]) -> str:
    """A paragraph for the beginning of a page: what all its numbers are of."""
    records = records_of(results)
    searches = [
        record for result in results if result.role == "final" for record in search_records(result, finished)
    ]
    nets, sets = setup.net, _set_words(setup, records)
    sentences = [f"Nets are {nets} on {sets}, trained on {places_words(records)}."]
    if searches and set(_places(searches)) != set(_places(records)):
        sentences.append(f"Those of the search, which chose settings, on {places_words(searches)}.")
    images = Counter(record["images"] for record in (*records, *searches) if record.get("images"))
    if len(images) > 1:
        counts = ", ".join(f"{count} nets" for count in images.values())
        sentences.append(
            f"They are of {len(images)} different sets of images ({counts}), which cannot be compared."
        )
    return " ".join(sentences)


def _set_words(setup: Setup, records: Sequence[Record]) -> str:
    title, parts = DATASETS[setup.dataset].title, sum(map(_is_of_a_part, records))
    if not parts:
        return title
    return f"a part of {title}" if parts == len(records) else f"{title} ({parts} of them on a part of it)"


def _is_of_a_part(record: Record) -> bool:
    """Whether a net had fewer training rows than the published set gives; rounding may leave out some."""
    rows = published_rows(NetTrial.from_dict(record["trial"]))["training"]
    return bool(abs(sum(record["class_counts"]) - rows) > 0.01 * rows)


def places_words(records: Iterable[Record]) -> str:
    """On which devices and in which precision, with how many nets each where there are several.

    >>> gpu, cpu = {"device": "H200", "precision": "bf16"}, {"device": "x86_64", "precision": "float32"}
    >>> places_words([gpu]), places_words([cpu, gpu, gpu])
    ('H200, bf16', 'H200, bf16 (2 nets) and x86_64, float32 (1 net)')
    """
    found = _places(records)
    if len(found) == 1:
        return next(iter(found))
    return " and ".join(
        f"{place} ({count} {'net' if count == 1 else 'nets'})" for place, count in found.most_common()
    )


def place_lines(
    result: Result,
    shown: Iterable[Result],
    name: Callable[[Record], str] = lambda record: str(record["trial"]["method"]),
) -> list[str]:
    """Lines above a table: where its nets were trained, by their names; none where a page has one place."""
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


def other_nets_words(name: str, setup: Setup, finished: Mapping[str, Record]) -> str:
    """Which other nets than that of `setup` the journal of a part of the paper has, and how they are shown.

    Empty where it has none.
    """
    trials = [record["trial"] for record in finished.values() if not setup.has(record["trial"])]
    counts = Counter((trial["depth"], trial["width"]) for trial in trials)
    return " ".join(
        f"There are also {count} trainings of {net_words(depth, width)}, which are not shown here: "
        f"python -m reproduction {name} --depth {depth} --width {width} shows them."
        for (depth, width), count in sorted(counts.items())
    )


def _places(records: Iterable[Record]) -> Counter[str]:
    return Counter(map(_place, records))


def _place(record: Record) -> str:
    return f"{record['device']}, {record['precision']}"
