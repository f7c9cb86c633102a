"""What nets are and what they were trained on, in words: net, image set and device.

A journal may have nets of several depths and widths, of a part of the images, from a CPU and from GPUs: a
page is of one net, and says which of its numbers are from where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from .journal import Record
from .plan import published_rows
from .results import Result, search_records
from .settings import DATASETS, Setup, Trial, net_words

__all__ = ["origin_words", "other_nets_words", "place_lines", "places_words", "records_of"]


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
    rows = published_rows(Trial.from_dict(record["trial"]))["training"]
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
