"""Verdicts on losses and blends: the kind follows from intervals and the least gain, whatever the words."""

from itertools import product

import numpy as np
import pytest

from raresight.automl import wording
from raresight.automl.evaluation import HeldOutEvaluation
from raresight.automl.wording import _signed, effect_of, model_words
from raresight.linear import LinearClassifier
from raresight.metrics import Comparison, compare
from raresight.model.families import Candidate

TUNED = (("l2", 0.1),)
# A difference and half of its interval, in points. The effect is the one at a least gain of 0.1 points.
GAIN, SMALL, CHANCE = (1.0, 0.5), (0.05, 0.02), (1.0, 2.0)
LOST, SMALL_LOST, NOTHING = (-1.0, 0.5), (-0.05, 0.02), (0.0, 0.0)
EFFECTS = {
    GAIN: "gain", (0.1, 0.01): "gain", LOST: "loss", (-0.1, 0.01): "loss",
    SMALL: "small", SMALL_LOST: "small", (0.099, 0.098): "small",
    CHANCE: "chance", (0.05, 0.06): "chance", NOTHING: "chance",
}  # fmt: skip


def comparison(points, half):
    difference, half = points / 100, half / 100
    return Comparison(
        "partial_auc",
        0.9,
        0.9 - difference,
        difference,
        difference - half,
        difference + half,
        0.01,
        0.95,
        "-",
    )


def verdict(twin, baseline, text="tbl(alpha=0.8,C=0.5)", parameters=TUNED, min_gain=0.1):
    # Two models never have the same figures to the last digit, unless they are one.
    twin = twin and (twin[0], twin[1] + 1e-9 * (parameters == TUNED))
    twin, baseline = (one and comparison(*one) for one in (twin, baseline))
    judged = HeldOutEvaluation(None, None, None, None, None, baseline, twin)  # type: ignore[arg-type]
    return wording.verdict([Candidate("linear", text, parameters)], judged, None, min_gain)


@pytest.mark.parametrize(("found", "effect"), EFFECTS.items())
def test_an_effect_is_beyond_chance_and_large_enough(found, effect):
    assert effect_of(comparison(*found), 0.1) == effect
    # Without a least gain only chance is left.
    certain = {
        "gain": "gain",
        "loss": "loss",
        "chance": "chance",
        "small": "gain" if found[0] > 0 else "loss",
    }
    assert effect_of(comparison(*found), 0.0) == certain[effect]
    # With a large one nothing is a gain or a loss.
    assert effect_of(comparison(*found), 50.0) in ("small", "chance")


EXPECTED = {
    (GAIN, GAIN): "loss",
    (CHANCE, GAIN): "parameters",
    (SMALL, GAIN): "parameters",
    (CHANCE, CHANCE): "chance",
    (LOST, GAIN): "loss_lost",
    (LOST, SMALL_LOST): "loss_lost",
    (SMALL_LOST, GAIN): "parameters",
    (CHANCE, LOST): "search_lost",
    (GAIN, LOST): "search_lost",
    (GAIN, SMALL_LOST): "made_up",
    (GAIN, CHANCE): "made_up",
    (GAIN, SMALL): "made_up",
    (SMALL, SMALL): "small",
    (CHANCE, SMALL): "small",
    (SMALL_LOST, CHANCE): "small",
}


@pytest.mark.parametrize(("found", "kind"), EXPECTED.items())
def test_verdicts_of_two_comparisons(found, kind):
    judged = verdict(*found)
    assert (judged.kind, judged.mattered) == (kind, kind == "loss")
    assert judged.sentence.count("interval") == (1 if kind.endswith("lost") else 2)
    assert "0.1 points" in judged.sentence


def test_a_verdict_never_rests_on_a_small_difference():
    """Every gain or loss that a verdict claims is one by interval and size, over the whole grid."""
    for twin, baseline, least in product(EFFECTS, EFFECTS, (0.0, 0.1, 0.7, 50.0)):
        kind = verdict(twin, baseline, min_gain=least).kind
        effects = [effect_of(comparison(*one), least) for one in (twin, baseline)]
        assert (kind == "loss") == (effects == ["gain", "gain"])
        assert (kind == "search_lost") == (effects[1] == "loss")
        assert kind != "loss_lost" or effects[0] == "loss"
        assert kind != "parameters" or effects[1] == "gain"
        assert kind != "made_up" or effects[0] == "gain"
        assert (kind in ("small", "chance")) == (set(effects) <= {"small", "chance"})


def test_verdicts_of_one_comparison():
    # With the defaults of its family twin and baseline may be one model, reported once.
    for one, kind in ((GAIN, "loss"), (CHANCE, "chance"), (LOST, "loss_lost"), (SMALL_LOST, "small")):
        judged = verdict(one, one, parameters=())
        assert judged.kind == kind
        assert judged.sentence.count("interval") == 1
    of_tuning = {
        None: "defaults", GAIN: "tuning_gained", LOST: "tuning_lost",
        CHANCE: "tuning_even", SMALL: "tuning_small",
    }  # fmt: skip
    for baseline, kind in of_tuning.items():
        assert verdict(None, baseline, "crossentropy").kind == kind


BLEND = (Candidate("linear", "tbl"), Candidate("lightgbm", "crossentropy"), Candidate("lightgbm", "focal"))


def blend_verdict(baseline, best_loss=None, min_gain=0.1):
    held_out = HeldOutEvaluation(None, None, None, None, None, comparison(*baseline), None)  # type: ignore[arg-type]
    return wording.verdict(BLEND, held_out, best_loss, min_gain)


@pytest.mark.parametrize(
    ("baseline", "kind"),
    [
        (GAIN, "blend_gained"), (LOST, "blend_lost"), (SMALL, "blend_small"),
        (SMALL_LOST, "blend_small"), (CHANCE, "blend_even"), (NOTHING, "blend_even"),
    ],
)  # fmt: skip
def test_verdicts_of_a_blend(baseline, kind):
    judged = blend_verdict(baseline)
    assert (judged.kind, judged.mattered) == (kind, False)
    assert judged.sentence.count("interval") == 1
    assert "0.1 points" in judged.sentence
    assert "blend of 3 models" in judged.sentence
    # It says by how much, with the sign where the words have none.
    shown = _signed(baseline[0] / 100)
    assert (shown[1:] if kind in ("blend_gained", "blend_lost") else shown) in judged.sentence


def test_a_verdict_of_a_blend_never_rests_on_a_small_difference():
    for baseline, least in product(EFFECTS, (0.0, 0.1, 0.7, 50.0)):
        effect = effect_of(comparison(*baseline), least)
        kinds = {"gain": "gained", "loss": "lost", "small": "small", "chance": "even"}
        assert blend_verdict(baseline, min_gain=least).kind == f"blend_{kinds[effect]}"


@pytest.mark.parametrize("found", [GAIN, LOST, CHANCE])
def test_how_near_the_other_losses_came_is_said_without_changing_the_verdict(found):
    best_loss = (Candidate("lightgbm", "focal(gamma=1.5)"), comparison(*found))
    plain = HeldOutEvaluation(None, None, None, None, None, comparison(*GAIN), None)  # type: ignore[arg-type]
    single = [Candidate("lightgbm", "crossentropy", (("num_leaves", 7),))]
    pairs = [
        (wording.verdict(single, plain, None, 0.1), wording.verdict(single, plain, best_loss, 0.1)),
        (blend_verdict(GAIN), blend_verdict(GAIN, best_loss)),
    ]
    for without, told in pairs:
        assert told.kind == without.kind
        added = told.sentence.removeprefix(without.sentence)
        assert added != told.sentence
        assert "focal(gamma=1.5)" in added
        assert _signed(found[0] / 100) in added
        assert added.count("interval") == 1
    # Where another loss won, it is the subject already.
    assert wording.verdict(
        [Candidate("linear", "tbl")],
        HeldOutEvaluation(None, None, None, None, None, comparison(*GAIN), comparison(*GAIN)),  # type: ignore[arg-type]
        best_loss,
        0.1,
    ) == verdict(GAIN, GAIN, "tbl", parameters=())


def test_a_model_is_named_by_its_candidate_or_their_number():
    assert model_words(BLEND[1:2]) == BLEND[1].describe()
    assert "3 models" in model_words(BLEND)


def test_an_interval_that_excludes_zero_shows_it():
    assert _signed(-1.9e-7) == "-0.000019"
    assert (_signed(0.0), _signed(0.0123), _signed(-0.00004)) == ("+0.00", "+1.23", "-0.0040")


def test_differences_too_small_to_act_on_are_no_verdicts():
    """Large tables in which the loss changes hundredths of a point: some are beyond chance, none matters."""
    kinds = {0.0: [], 0.1: []}
    for seed in range(15):
        random = np.random.default_rng(seed)
        X = random.normal(size=(120_000, 4))
        # Slightly curved, so that the weights of rows by the loss move the line a little.
        odds = X @ [1.5, 1.0, 0.5, 0.0] + 0.1 * X[:, 0] ** 2 - 4
        y = (random.random(len(X)) < 1 / (1 + np.exp(-odds))).astype(int)
        train, test = slice(0, 60_000), slice(60_000, None)
        ours, theirs = (
            LinearClassifier(loss).fit(X[train], y[train]).decision_function(X[test])
            for loss in ("tbl(alpha=0.8,C=0.5)", "crossentropy")
        )
        found = compare("partial_auc", y[test], ours, theirs, max_fpr=0.01)
        held_out = HeldOutEvaluation(None, None, None, None, None, found, found)  # type: ignore[arg-type]
        for least, own in kinds.items():
            own.append(wording.verdict([Candidate("linear", "tbl")], held_out, None, least).kind)
    claims = {least: sum(kind in ("loss", "loss_lost") for kind in own) for least, own in kinds.items()}
    assert claims[0.0] > claims[0.1] == 0
    assert kinds[0.1].count("small") == claims[0.0]
