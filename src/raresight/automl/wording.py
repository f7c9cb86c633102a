"""Sentences about the outcome of a fit, shown by terminal, JSON and report.

Each statement has one function here, so that all of them say the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .space import CROSS_ENTROPY

if TYPE_CHECKING:
    from ..metrics import Comparison
    from ..model.families import Candidate
    from .evaluation import HeldOutEvaluation, Outcome, SearchSummary
    from .options import Options

__all__ = [
    "Verdict",
    "cost",
    "effect",
    "effect_of",
    "headline",
    "headline_parts",
    "interval_words",
    "leak_sentence",
    "model_words",
    "no_alert_note",
    "repeat_note",
    "rows_with_positives",
    "search_note",
    "search_summary",
    "split_sentence",
    "verdict",
]

# Columns named in the headline; the warnings name all.
_NAMED = 3


def headline(outcome: Outcome) -> str:
    """Say what the model catches, in the user's own names."""
    return "".join(headline_parts(outcome))


def headline_parts(outcome: Outcome) -> tuple[str, str, str]:
    """Return the headline in three parts, of which the second is its figure; empty without an alert."""
    found, schema = outcome.evaluation, outcome.model.schema
    doubt = leak_sentence(outcome.profile.leaks, outcome.profile.doubtful)
    if not found.alerts:
        return f"{doubt} {no_alert_note(outcome.held_out)}".lstrip(), "", ""
    recall = found["recall_at_fpr"]
    return (
        f"{doubt} The model catches ".lstrip(),
        f"{recall.estimate:.1%}",
        f" of the rows with {schema.target} = {schema.positive} "
        f"({interval_words(recall.level, f'{recall.low:.1%}', f'{recall.high:.1%}')}).",
    )


def leak_sentence(left_out: Sequence[str], doubtful: Sequence[str]) -> str:
    """Name the columns that give the target away; empty if there are none.

    >>> leak_sentence(["paid_back"], [])
    "Left out, because it gives the target away: 'paid_back'."
    >>> leak_sentence([], ["a", "b"])
    "Doubtful, unless known at the time of the decision: 'a' and 'b', each of which may give the target away."
    """
    sentences = []
    if left_out:
        it = "it gives" if len(left_out) == 1 else "they give"
        sentences.append(f"Left out, because {it} the target away: {_listed(left_out)}.")
    if doubtful:
        which = "which" if len(doubtful) == 1 else "each of which"
        sentences.append(
            f"Doubtful, unless known at the time of the decision: {_listed(doubtful)}, {which} may give the "
            "target away."
        )
    return " ".join(sentences)


def _listed(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:_NAMED]]
    if len(names) > _NAMED:
        shown.append(f"{len(names) - _NAMED} more")
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def cost(outcome: Outcome) -> str:
    """Say how many alerts that costs; empty if no alert is raised."""
    found, alerts = outcome.evaluation, outcome.held_out.alerts_per_100k
    if not found.alerts:
        return ""
    return (
        f"At most {100 * found.fpr:.4g}% of the other rows raise a false alert. "
        f"That is {alerts:,.0f} alerts per 100,000 rows, {found.precision:.1%} of them right."
    )


def no_alert_note(held_out: HeldOutEvaluation) -> str:
    """Say that any alert would exceed the false-positive rate; empty if alerts are possible."""
    if held_out.evaluation.alerts:
        return ""
    # Equal scores raise alerts together. So many negatives may share the highest score that the lowest
    # possible number of alerts is already too many.
    top = held_out.log_odds == held_out.log_odds.max()
    rate = float(np.mean(top[held_out.y == 0]))
    return (
        f"No alert is possible at a false-positive rate of {held_out.evaluation.fpr:g}: {rate:.2%} of the "
        "held-out negatives share the highest score. Ask for a higher rate, or add columns that separate "
        "such rows."
    )


def rows_with_positives(kind: str, rows: int, positives: int) -> str:
    """Say how many rows of a kind there are and how many of them are positive.

    >>> rows_with_positives("held-out", 1200, 1)
    '1,200 held-out rows with 1 positive'
    """
    return f"{_counted(rows, f'{kind} row')} with {_counted(positives, 'positive')}"


def interval_words(level: float, low: str, high: str) -> str:
    """Write an interval, its ends as text.

    >>> interval_words(0.95, "0.12", "0.34")
    '95% interval 0.12 to 0.34'
    """
    return f"{level:.0%} interval {low} to {high}"


def search_note(search: SearchSummary) -> str:
    """Say that the search was interrupted; empty if it was not.

    >>> from raresight.automl.evaluation import SearchSummary
    >>> search_note(SearchSummary(12, 0, 100, 9.0, "interrupted"))
    'The search was interrupted after 12 of 100 candidates.'
    """
    if search.stopped_by != "interrupted":
        return ""
    done = _counted(search.done, "candidate")
    if search.planned is not None:
        done = f"{search.done:,} of {_counted(search.planned, 'candidate')}"
    return f"The search was interrupted after {done}."


def search_summary(search: SearchSummary) -> str:
    """Summarise the search in at most two sentences.

    >>> from raresight.automl.evaluation import SearchSummary
    >>> search_summary(SearchSummary(49, 1, 50, 38.2, "trials"))
    '50 candidates in 38.2 seconds, of which 1 failed.'
    """
    seconds = f"{search.seconds:.1f}" if search.seconds < 100 else f"{search.seconds:,.0f}"
    failed = f", of which {search.failed:,} failed" if search.failed else ""
    candidates = _counted(search.done, "candidate")
    return f"{candidates} in {seconds} seconds{failed}. {search_note(search)}".strip()


def model_words(candidates: Sequence[Candidate]) -> str:
    """Name the candidates of a model in a sentence."""
    if len(candidates) == 1:
        return candidates[0].describe()
    return f"a blend of {len(candidates)} models"


def repeat_note(search: SearchSummary) -> str:
    """Say whether the command repeats the model, and what to add if it may not."""
    if search.reproducible:
        return "The same command on the same data, with the same versions, gives the same model."
    cause = "was interrupted" if search.stopped_by == "interrupted" else "was limited by time"
    return (
        f"The search {cause}, so another run may get further. With --trials {search.done} and the same seed "
        "the outcome is the same."
    )


def split_sentence(options: Options) -> str:
    """Say how rows were held out."""
    if options.test is not None:
        return "The test rows come from a file of their own."
    share = f"{options.test_size:.0%}"
    if options.time is not None and options.group is not None:
        return (
            f"The test rows are of the latest {share} by {options.time}. Training saw rows before "
            f"them, and no {options.group} of theirs."
        )
    if options.time is not None:
        return f"The test rows are the latest {share} by {options.time}. Training saw the rows before them."
    if options.group is not None:
        return f"The test rows are about {share}, in whole groups by {options.group}: none is on both sides."
    return f"The test rows are a random {share}, with the same share of positives."


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Verdict:
    """Verdict on whether the loss mattered on the held-out rows.

    Attributes:
        kind: "loss" (it did), "parameters" (they gained what was gained), "made_up" (the loss made up for its
            parameters), "small" (beyond chance, but too small to act on), "chance", "loss_lost" or
            "search_lost" (cross entropy was better). Where cross entropy won: "defaults", or "tuning_gained",
            "tuning_lost", "tuning_small", "tuning_even" for its parameters. For a blend: "blend_gained",
            "blend_lost", "blend_small", "blend_even".
        sentence: The verdict in sentences.
    """

    kind: str
    sentence: str

    @property
    def mattered(self) -> bool:
        return self.kind == "loss"


def verdict(
    chosen: Sequence[Candidate],
    held_out: HeldOutEvaluation,
    best_loss: tuple[Candidate, Comparison] | None,
    min_gain: float,
) -> Verdict:
    """Decide what the search and the losses gained, by paired intervals.

    Args:
        chosen: The candidates of the model.
        held_out: Comparisons on the held-out rows.
        best_loss: The best candidate of another loss than cross entropy, compared out of fold with the best
            of cross entropy.
        min_gain: The least difference that counts, in points of 0.01.
    """
    if len(chosen) == 1 and chosen[0].loss != CROSS_ENTROPY:
        return _of_loss(chosen[0], held_out, min_gain)
    found = _of_blend(chosen, held_out, min_gain) if len(chosen) > 1 else None
    found = found or _of_tuning(held_out.against_baseline, min_gain)
    if best_loss is None:
        return found
    candidate, compared = best_loss
    return Verdict(
        found.kind,
        f"{found.sentence} Of the other losses {candidate.loss} came nearest in cross-validation: "
        f"{_signed(compared.difference)} points to the best cross entropy ({_span(compared)}).",
    )


def _of_blend(chosen: Sequence[Candidate], held_out: HeldOutEvaluation, min_gain: float) -> Verdict:
    """Decide for a blend: what did it change to cross entropy with defaults?"""
    baseline = held_out.against_baseline
    assert baseline is not None
    blend = f"A blend of {len(chosen)} models was best in cross-validation."
    effect, counts = effect_of(baseline, min_gain), _counts(min_gain)
    gap = f"{_points(baseline)} of partial AUC on the held-out rows ({_span(baseline)})"
    if effect == "gain":
        text = f"{blend} It gains {gap} over cross entropy with defaults. {counts}"
        return Verdict("blend_gained", text)
    if effect == "loss":
        text = (
            f"{blend} On the held-out rows it has {_points(baseline)} less partial AUC than cross entropy "
            f"with defaults ({_span(baseline)}). {counts}"
        )
        return Verdict("blend_lost", text)
    change = f"{_signed(baseline.difference)} points of partial AUC on the held-out rows ({_span(baseline)})."
    if effect == "small":
        return Verdict(
            "blend_small", f"{blend} {_small(min_gain)} To cross entropy with defaults it is {change}"
        )
    text = f"{blend} Its difference to cross entropy with defaults may be chance: {change} {counts}"
    return Verdict("blend_even", text)


def _of_loss(winner: Candidate, held_out: HeldOutEvaluation, min_gain: float) -> Verdict:
    """Decide whether the loss of a single candidate mattered.

    It did if the winner beats cross entropy with defaults and cross entropy with its own parameters. Each
    difference must be beyond chance, by the paired interval, and at least `min_gain` points.
    """
    twin, baseline, name = held_out.against_twin, held_out.against_baseline, winner.loss
    assert twin is not None
    # Cross entropy with defaults failed, or it is the twin: one comparison, said once.
    if baseline is None or baseline == twin:
        return _of_one(name, twin, min_gain)
    effects = (effect_of(twin, min_gain), effect_of(baseline, min_gain))
    # The order of the cases matters. A gain over both comes first. Then a loss against the plain baseline:
    # that reader should take the simpler model, whatever the twin says.
    same, plain = f"with the same parameters ({_span(twin)})", f"with defaults ({_span(baseline)})"
    counts = _counts(min_gain)
    if effects == ("gain", "gain"):
        return Verdict(
            "loss",
            f"The loss mattered. {name} gains {_points(twin)} of partial AUC over cross entropy {same}. Over "
            f"cross entropy {plain} it gains {_points(baseline)}. {counts}",
        )
    if effects[1] == "loss":
        return Verdict(
            "search_lost",
            f"The loss did not help. On the held-out rows cross entropy {plain} has {_points(baseline)} "
            f"more partial AUC than {name}, which was best in cross-validation. {counts}",
        )
    if effects[0] == "loss":
        return Verdict(
            "loss_lost",
            f"The loss did not help. On the held-out rows cross entropy {same} has {_points(twin)} more "
            f"partial AUC than {name}. {counts}",
        )
    differences = (
        f"The difference is {_signed(twin.difference)} points of partial AUC to cross entropy {same}, and "
        f"{_signed(baseline.difference)} points to cross entropy {plain}."
    )
    if "gain" not in effects and "small" in effects:
        return Verdict("small", f"The loss did not matter. {_small(min_gain)} {differences}")
    differences += f" {counts}"
    if effects[1] == "gain":
        return Verdict("parameters", f"The loss did not matter: the parameters gained. {differences}")
    if effects[0] == "gain":
        return Verdict("made_up", f"The loss did not matter: it made up for its parameters. {differences}")
    return Verdict(
        "chance",
        f"The loss did not matter. {name} won in cross-validation, but its gain on the held-out rows may be "
        f"chance. {differences}",
    )


def _of_one(name: str, found: Comparison, min_gain: float) -> Verdict:
    """Decide for a winner with the defaults of its family: twin and baseline are then one model."""
    effect, counts = effect_of(found, min_gain), _counts(min_gain)
    if effect == "gain":
        return Verdict(
            "loss",
            f"The loss mattered. {name} gains {_points(found)} of partial AUC over cross entropy, both with "
            f"defaults ({_span(found)}). {counts}",
        )
    if effect == "loss":
        return Verdict(
            "loss_lost",
            f"The loss did not help. On the held-out rows cross entropy has {_points(found)} more partial "
            f"AUC than {name}, both with defaults ({_span(found)}). {counts}",
        )
    difference = (
        f"The difference to cross entropy is {_signed(found.difference)} points of partial AUC, both with "
        f"defaults ({_span(found)})."
    )
    if effect == "small":
        return Verdict("small", f"The loss did not matter. {_small(min_gain)} {difference}")
    return Verdict(
        "chance",
        f"The loss did not matter. {name} won in cross-validation, but its gain on the held-out rows may be "
        f"chance. {difference} {counts}",
    )


def _of_tuning(found: Comparison | None, min_gain: float) -> Verdict:
    """Decide for cross entropy as winner: what did its parameters change?"""
    won = "The loss did not matter: cross entropy was best in cross-validation"
    if found is None:
        return Verdict("defaults", f"{won}, with defaults.")
    effect, counts = effect_of(found, min_gain), _counts(min_gain)
    gap = f"{_points(found)} of partial AUC on the held-out rows ({_span(found)})"
    if effect == "gain":
        return Verdict("tuning_gained", f"{won}. Its parameters gain {gap} over the defaults. {counts}")
    if effect == "loss":
        lost = f"Its parameters lose {gap} to the defaults."
        return Verdict("tuning_lost", f"{won}. {lost} {counts}")
    change = f"{_signed(found.difference)} points of partial AUC on the held-out rows ({_span(found)})."
    if effect == "small":
        return Verdict("tuning_small", f"{won}. {_small(min_gain)} Its parameters change {change}")
    return Verdict("tuning_even", f"{won}. What its parameters change may be chance: {change} {counts}")


def effect_of(found: Comparison, min_gain: float) -> str:
    """Sort a comparison by `effect`."""
    return effect(found.difference, found.low, found.high, min_gain)


def effect(difference: float, low: float, high: float, min_gain: float) -> str:
    """Sort a difference with its interval into "gain", "loss", "small" or "chance".

    "small" is beyond chance, but below `min_gain` points. On a large table differences of a few hundredths of
    a point are beyond chance, and change no decision.
    """
    # The estimate decides the size, not the bound nearest zero. The held-out rows chose nothing, so the
    # estimate is what acting gains on average; the interval already answers for chance. The bound would ask
    # for `min_gain` plus half an interval: with 100 positives a point or two, which few losses gain.
    if not (low > 0 or high < 0):
        return "chance"
    if abs(difference) * 100 < min_gain:
        return "small"
    return "gain" if difference > 0 else "loss"


def _small(min_gain: float) -> str:
    return f"A difference is beyond chance, but smaller than {min_gain:g} points: not worth acting on."


def _counts(min_gain: float) -> str:
    """State the size from which a difference counts.

    >>> _counts(0.1)
    'A difference counts if it is beyond chance and at least 0.1 points.'
    """
    if min_gain == 0:
        return "A difference counts if it is beyond chance, whatever its size."
    return f"A difference counts if it is beyond chance and at least {min_gain:g} points."


def _points(found: Comparison) -> str:
    return f"{_signed(abs(found.difference))[1:]} points"


def _span(found: Comparison) -> str:
    return interval_words(found.level, _signed(found.low), _signed(found.high))


def _signed(share: float) -> str:
    """Write a share in hundredths, with enough digits to see on which side of zero it is."""
    points = share * 100
    # An interval from +0.00 would leave open whether it excludes zero, on which the verdict rests.
    digits = 2 if abs(points) >= 0.005 or points == 0 else 1 - math.floor(math.log10(abs(points)))
    return f"{points:+.{digits}f}"
