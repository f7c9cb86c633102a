"""Families, losses and the list of candidates."""

from __future__ import annotations

import re
import warnings
from itertools import islice

import numpy as np
import pytest
from table_search import table

from raresight.automl.space import candidates, default_losses, make_space
from raresight.losses import parse
from raresight.losses.registry import loss_kinds
from raresight.model.families import FAMILIES, Candidate, fit_candidates, installed_families

COUNTS = (2940, 60)
SPREAD = 8  # contrasting settings of boosters


def listed(space, number, seed=0):
    """The first trials of the list, without their groups."""
    trials = (trial for group in candidates(space, COUNTS, seed) for trial in group)
    return list(islice(trials, number))


def random_ones(space, number, seed=0):
    trials = (trial for group in candidates(space, COUNTS, seed) for trial in group)
    return [trial.candidate for trial in islice((one for one in trials if one.origin == "random"), number)]


def test_without_names_everything_installed_but_nets_is_tried():
    space = make_space()
    assert (*space.families, "deep", "tabm", "tabnet") == installed_families()
    assert space.losses == default_losses()


def test_commas_inside_brackets_do_not_divide():
    space = make_space(" linear , LightGBM", "tbl(alpha=0.7,C=1),Focal, ldam(class_counts=(990,10),scale=1)")
    assert space.families == ("linear", "lightgbm")
    assert space.losses == (
        "crossentropy",
        "tbl(alpha=0.7,C=1)",
        "focal",
        "ldam(class_counts=(990,10),scale=1)",
    )
    assert space == make_space(["linear", "lightgbm"], list(space.losses))


def test_cross_entropy_is_always_there_once():
    assert make_space("linear", "tbl").losses == ("crossentropy", "tbl")
    assert make_space("linear", "tbl,crossentropy").losses == ("crossentropy", "tbl")
    assert make_space("linear", "CrossEntropy").losses == ("crossentropy",)


@pytest.mark.parametrize(
    ("families", "losses", "said"),
    [
        ("copse", None, "unknown family 'copse'; known are linear, lightgbm, xgboost"),
        ("", None, "no family was named"),
        ("linear", "focl", "did you mean 'focal'"),
        ("linear", "tbl(alpha=-1)", "alpha"),
        ("linear", "tbl(beta=1)", "alpha"),
        ("linear", "logitadjusted", "missing a required argument"),
        ("linear", "vectorscaling(class_counts=(1,2,3))", "one score of two classes"),
        ("linear", "tbl(alpha=0.7", "cannot read"),
    ],
)
def test_bad_names_are_refused(families, losses, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make_space(families, losses)


def test_names_are_texts():
    with pytest.raises(TypeError, match="named by texts, got 3"):
        make_space("linear", ["tbl", 3])


def test_the_list_begins_with_cross_entropy_of_boosters_and_holds_every_loss():
    space = make_space("linear,lightgbm,xgboost", "tbl,alpha,focal,poly,vectorscaling,ldam")
    planned = 4 + SPREAD + (6 + 24) + 2 * 6
    trials = listed(space, planned + 5)
    assert [trial.number for trial in trials] == list(range(planned + 5))
    assert [trial.origin for trial in trials[planned:]] == ["random"] * 5
    first = [trial.candidate for trial in trials[:3]]
    assert first == [Candidate(family, "crossentropy") for family in ("lightgbm", "xgboost", "linear")]
    assert trials[3].candidate == Candidate("linear", "crossentropy", (("knots", 5),))
    spread = trials[4 : 4 + SPREAD]
    assert {(trial.origin, trial.candidate.loss) for trial in spread} == {("spread", "crossentropy")}
    assert [trial.candidate.family for trial in spread] == ["lightgbm", "xgboost"] * (SPREAD // 2)
    linear = trials[4 + SPREAD : 4 + SPREAD + 30]
    assert [trial.origin for trial in linear] == ["default"] * 6 + ["map"] * 24
    assert {trial.candidate.family for trial in linear} == {"linear"}
    assert linear[0].candidate.loss == "tbl(alpha=0.8,C=0.5)"
    assert linear[5].candidate.loss == "ldam(class_counts=(2940,60),max_margin=0.5,scale=1.0)"
    boosted = [trial.candidate for trial in trials[4 + SPREAD + 30 : planned]]
    assert [one.family for one in boosted] == ["lightgbm"] * 6 + ["xgboost"] * 6
    assert [one.loss for one in boosted[:6]] == [trial.candidate.loss for trial in linear[:6]]
    assert len({trial.candidate for trial in trials[:planned]}) == planned
    assert all(not trial.candidate.parameters for trial in trials[:planned] if trial.origin != "spread")


def test_linear_candidates_share_their_fits_and_others_stand_alone():
    space = make_space("linear,lightgbm", "tbl,focal")
    groups = list(islice(candidates(space, COUNTS, 0), 16))
    together = [group for group in groups if len(group) > 1]
    assert [{trial.candidate.family for trial in group} for group in together] == [{"linear"}]
    assert len(together[0]) == 2 + 24
    assert [trial.number for group in groups for trial in group] == list(range(sum(map(len, groups))))


def test_the_list_is_the_same_again_and_the_seed_moves_its_random_part_alone():
    space = make_space()
    once, again, other = (listed(space, 90, seed) for seed in (3, 3, 4))
    assert once == again
    planned = [trial.origin for trial in once].index("random")
    assert once[:planned] == other[:planned]
    assert all(a.candidate != b.candidate for a, b in zip(once[planned:], other[planned:]))
    assert len({trial.candidate for trial in once}) == 90


def test_the_spread_lies_in_the_ranges():
    for trial in listed(make_space(), 40):
        reaches = FAMILIES[trial.candidate.family].parameters
        for name, value in trial.candidate.parameters:
            assert reaches[name].low <= value <= reaches[name].high


def test_random_ones_lie_in_the_ranges_and_parse_without_a_warning():
    space = make_space()
    seen, reached = set(), {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for candidate in random_ones(space, 300):
            loss = parse(candidate.loss)
            assert loss.takes_score
            assert loss.has_unique_minimiser
            assert candidate == Candidate.from_dict(candidate.to_dict())
            family = FAMILIES[candidate.family]
            # The folds choose the rounds.
            assert set(dict(candidate.parameters)) == set(family.parameters) - {family.rounds}
            for name, value in candidate.parameters:
                reach = family.parameters[name]
                assert reach.low <= value <= reach.high
                assert isinstance(value, int) == isinstance(reach.low, int)
                ends = np.log if reach.log else float
                share = (ends(value) - ends(reach.low)) / (ends(reach.high) - ends(reach.low))
                reached.setdefault((candidate.family, name), []).append(share)
            for name, reach in loss_kinds()[loss.name].search_ranges().items():
                assert reach.low <= getattr(loss, name) <= reach.high
            seen.add((candidate.family, loss.name))
    boosters = [family for family in space.families if FAMILIES[family].rounds]
    assert seen == {(family, loss) for family in boosters for loss in space.losses}
    for shares in reached.values():  # the whole of each range, evenly by the scale that it declares
        assert min(shares) < 0.15
        assert max(shares) > 0.85
        assert 0.4 < np.mean(shares) < 0.6


def test_a_forest_is_one_candidate_with_cross_entropy():
    of_forests = [trial for trial in listed(make_space(), 150) if trial.candidate.family == "forest"]
    assert [(one.origin, one.candidate) for one in of_forests] == [
        ("default", Candidate("forest", "crossentropy"))
    ]
    assert of_forests[0].number < 4
    drawn = random_ones(make_space("linear,forest", "tbl"), 40)
    assert {(one.family, one.loss[:3]) for one in drawn} >= {("forest", "cro"), ("linear", "tbl")}
    assert {one.loss for one in drawn if one.family == "forest"} == {"crossentropy"}


def test_half_of_the_random_ones_have_cross_entropy():
    losses = [one.loss for one in random_ones(make_space("lightgbm"), 300)]
    assert 0.4 < losses.count("crossentropy") / 300 < 0.6


def test_without_boosters_the_random_ones_are_of_what_there_is():
    assert {one.family for one in random_ones(make_space("linear,deep", "tbl"), 30)} == {"linear", "deep"}


@pytest.mark.parametrize("end", ["low", "high"])
def test_the_ends_of_every_range_can_be_fitted(end):
    space = make_space()
    X, y = table(600, 30)
    fitted = set()
    for family in space.families:
        values = {name: getattr(reach, end) for name, reach in FAMILIES[family].parameters.items()}
        values |= {name: 20 for name in values if name == FAMILIES[family].rounds}
        for name in space.losses if FAMILIES[family].takes_losses else ("crossentropy",):
            kind = loss_kinds()[name]
            reaches = kind.search_ranges()
            ends = {key: float(getattr(reach, end)) for key, reach in reaches.items()}
            loss = kind.for_search(ends, (570, 30)) if reaches else kind()
            (one,) = fit_candidates([Candidate(family, str(loss), tuple(values.items()))], X, y, (4,), (3,))
            assert np.isfinite(one.log_odds(X)).all()
            fitted.add(one.candidate.text)
    of_one_loss = [family for family in space.families if not FAMILIES[family].takes_losses]
    assert of_one_loss == ["forest"]
    assert len(fitted) == (len(space.families) - 1) * len(space.losses) + 1


def test_a_full_text_is_not_tuned():
    space = make_space("linear", "tbl(alpha=0.7,C=1)")
    trials = listed(space, 30)
    assert {trial.candidate.loss for trial in trials} == {"crossentropy", "tbl(alpha=0.7,C=1)"}
    assert [trial.origin for trial in trials[:4]] == ["default", "spread", "default", "random"]


def test_a_registered_loss_is_searched_by_what_it_declares(monkeypatch):
    from dataclasses import dataclass
    from typing import ClassVar

    from raresight.losses import TBL, param, register, registry

    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))

    @register
    @dataclass(frozen=True)
    class Mine(TBL):
        name: ClassVar[str] = "mine"
        search_place: ClassVar[float | None] = 0.5
        alpha: float = param(0.7, search=(0.6, 0.9))
        C: float = param(0.2, search=(0.0, 1.0))

    assert default_losses()[:3] == ("crossentropy", "mine", "tbl")
    space = make_space("linear", "mine")
    first, _, second, *rest = listed(space, 61)
    assert (first.candidate.loss, second.candidate.loss) == ("crossentropy", "mine(alpha=0.7,C=0.2)")
    # The inherited map does not hold the defaults.
    assert [trial.origin for trial in rest] == ["map"] * 25 + ["random"] * 33
    drawn = [parse(trial.candidate.loss) for trial in rest[25:] if "mine" in trial.candidate.loss]
    assert all(0.6 <= loss.alpha <= 0.9 and 0 <= loss.C <= 1 for loss in drawn)
    assert len(set(drawn)) == len(drawn) > 5
