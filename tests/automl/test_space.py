"""Families, losses and what is asked of Optuna."""

from __future__ import annotations

import re
import warnings

import numpy as np
import optuna
import pytest
from table_search import table

from raresight.automl.space import default_losses, distributions, make_space, planned_trials, suggest
from raresight.losses import parse
from raresight.losses.registry import loss_kinds
from raresight.model.families import FAMILIES, Candidate, fit_candidates, installed_families

COUNTS = (2940, 60)


def asked(number, space, sampler=None):
    study = optuna.create_study(sampler=sampler or optuna.samplers.RandomSampler(seed=number))
    return suggest(study.ask(), space, COUNTS)


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


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
        ("forest", None, "unknown family 'forest'; known are linear, lightgbm, xgboost"),
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


def test_the_plan_begins_with_cross_entropy_in_every_family():
    space = make_space("linear,lightgbm,xgboost", "tbl,alpha,focal,poly,vectorscaling,ldam")
    candidates = [trial.candidate for trial in planned_trials(space, COUNTS)]
    assert candidates[:3] == [Candidate(family, "crossentropy") for family in space.families]
    others = candidates[3:21]
    assert [one.family for one in others] == ["linear"] * 6 + ["lightgbm"] * 6 + ["xgboost"] * 6
    assert others[0].loss == "tbl(alpha=0.8,C=0.5)"
    assert others[5].loss == "ldam(class_counts=(2940,60),max_margin=0.5,scale=1.0)"
    grid = candidates[21:]
    assert {one.family for one in grid} == {"linear"}
    assert len(grid) == 24
    assert len(set(candidates)) == len(candidates) == 45
    assert all(one.parameters == () for one in candidates)


def test_the_plan_lies_in_the_space():
    space = make_space(None, "tbl,alpha,focal,poly,vectorscaling,ldam,squared,tbl(alpha=0.6,C=0.1)")
    for plan in planned_trials(space, COUNTS):
        values = dict(plan.values)
        trial = optuna.trial.create_trial(
            value=0.0, params=values, distributions=distributions(space, list(values))
        )  # which raises for a value outside
        assert suggest(trial, space, COUNTS) == Candidate(
            plan.candidate.family,
            plan.candidate.loss,
            tuple(FAMILIES[plan.candidate.family].defaults.items()),
        )


def test_every_loss_asked_for_parses_without_a_warning():
    space = make_space()
    seen = set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(300):
            candidate = asked(number, space)
            loss = parse(candidate.loss)
            assert loss.takes_score
            assert loss.has_unique_minimiser
            assert candidate == Candidate.from_dict(candidate.to_dict())
            seen.add((candidate.family, loss.name))
    assert len(seen) == len(space.families) * len(space.losses)


def test_the_ends_of_every_range_can_be_fitted():
    space = make_space()
    X, y = table(600, 30)
    fitted = set()
    for family in space.families:
        for loss in space.losses:
            for end in ("low", "high"):
                values = {"family": family, "loss": loss}
                reaches = distributions(space, ["family", "loss"])
                names = [f"{family}.{name}" for name in FAMILIES[family].defaults]
                names += [f"{loss}.{name}" for name in loss_kinds()[loss].search_ranges()]
                for name, reach in distributions(space, names).items():
                    reaches[name] = reach
                    values[name] = getattr(reach, end)
                    if name.endswith("n_estimators"):
                        values[name] = 50
                trial = optuna.trial.create_trial(value=0.0, params=values, distributions=reaches)
                (one,) = fit_candidates([suggest(trial, space, COUNTS)], X, y, (4,), (3,))
                assert np.isfinite(one.log_odds(X)).all()
                fitted.add(one.candidate.text)
    assert len(fitted) == 2 * len(space.families) * len(space.losses)


def test_a_full_text_is_not_tuned():
    space = make_space("linear", "tbl(alpha=0.7,C=1)")
    losses = {asked(number, space).loss for number in range(20)}
    assert losses == {"crossentropy", "tbl(alpha=0.7,C=1)"}


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
    first, second, *grid = [trial.candidate for trial in planned_trials(space, COUNTS)]
    assert (first.loss, second.loss) == ("crossentropy", "mine(alpha=0.7,C=0.2)")
    assert len(grid) == 25  # the inherited map does not hold the defaults
    ranges = distributions(space, ["mine.alpha", "mine.C"])
    assert [(one.low, one.high) for one in ranges.values()] == [(0.6, 0.9), (0.0, 1.0)]
