"""A recipe says what is wrong with it before anything is trained."""

from __future__ import annotations

import json

import numpy as np
import pytest

from raresight.nn import Recipe
from reproduction.experiments.stack import image_recipe


def test_the_papers_recipes():
    images, tables = image_recipe(), Recipe()
    assert (images.optimiser, images.lr, images.momentum, images.weight_decay) == ("sgd", 0.002, 0.9, 2.5e-4)
    assert (images.epochs, images.batch, images.warmup_epochs, images.drw_epoch) == (250, 128, 10, 160)
    assert images.decay_epochs == (160, 180)
    assert (tables.optimiser, tables.lr, tables.batch, tables.warmup_epochs) == ("adamw", 1e-3, 128, 15)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(lr=[0.1, 0.2], clip=[None, 3.0], deferred=[True, False], drw_epoch=3),
        Recipe(
            optimiser="sgd",
            decay_epochs=[160, 180],
            best_by="recall_0.01",
            fprs=[0.01],
            clip=2.0,
            precision="bf16",
        ),
    ],
)
def test_goes_through_json(recipe):
    again = Recipe.from_dict(json.loads(json.dumps(recipe.to_dict(), allow_nan=False)))
    assert again == recipe
    assert hash(again) == hash(recipe)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1, but is 0"),
        ({"batch": 2.5}, "batch must be a whole number"),
        ({"evaluate_every": True}, "evaluate_every must be a whole number"),
        ({"optimiser": "adam"}, "one of sgd, adamw, but is 'adam'"),
        ({"precision": "fp8"}, "one of float32, bf16, float64, but is 'fp8'"),
        ({"lr": 0.0}, "lr must be above 0 and finite, but is 0.0"),
        ({"lr": (0.1, float("inf"))}, "lr must be above 0 and finite, but is inf"),
        ({"clip": -1.0}, "clip must be above 0"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, but is 1.0"),
        ({"weight_decay": float("nan")}, "weight_decay must be at least 0 and finite, but is nan"),
        ({"betas": (0.9,)}, "betas must be two numbers"),
        ({"betas": (0.9, 1.0)}, "betas must be at least 0 and below 1"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"warmup_epochs": -1}, "warmup_epochs must be at least 0"),
        ({"decay_epochs": (10.5,)}, "decay_epochs must be a whole number"),
        ({"drw_epoch": -1}, "drw_epoch must be a whole number"),
        ({"fprs": ()}, "at least one false-positive rate"),
        ({"fprs": (2.0,)}, "fprs must be above 0 and at most 1, but is 2.0"),
        ({"fprs": (0.01, 0.5, 0.01000000001)}, r"differ in their first six digits, but .* has 0\.01 twice"),
        ({"deferred": (True, False), "drw_epoch": None}, "but drw_epoch is None, which is for never"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**changes)


def test_refuses_what_is_no_number():
    with pytest.raises(TypeError, match=r"lr must be a number, but is '0\.1'"):
        Recipe(lr="0.1")
    with pytest.raises(TypeError, match="compiled must be True or False, but is 'no'"):
        Recipe(compiled="no")
    for name, value in (("fprs", 0.01), ("betas", 0.9), ("decay_epochs", 3), ("fprs", "0.01")):
        with pytest.raises(TypeError, match=f"{name} must be a sequence of numbers such as .*{value}"):
            Recipe(**{name: value})
    for value in (True, (1, 0), "yes"):
        with pytest.raises(TypeError, match="deferred must be None or a sequence of True and False"):
            Recipe(drw_epoch=160, deferred=value)
    with pytest.raises(ValueError, match="a recipe has no rate"):
        Recipe.from_dict({"rate": 0.1})


def test_numbers_of_numpy_are_taken():
    recipe = Recipe(
        epochs=np.int64(3),
        lr=np.float32(0.5),
        clip=np.array([1.0, 2.0]),
        decay_epochs=np.arange(2),
        fprs=[np.float64(0.1)],
        drw_epoch=2,
        deferred=np.array([True, False]),
        compiled=np.False_,
    )
    plain = Recipe(
        epochs=3,
        lr=0.5,
        clip=(1.0, 2.0),
        decay_epochs=(0, 1),
        fprs=(0.1,),
        drw_epoch=2,
        deferred=(True, False),
    )
    assert recipe == plain
    assert json.dumps(recipe.to_dict()) == json.dumps(plain.to_dict())


def test_one_value_a_replica():
    assert Recipe(lr=0.1).rates_of(2) == [0.1, 0.1]
    assert Recipe(clip=None).clips_of(2) is None
    assert Recipe(clip=(None, 2.0)).clips_of(2) == [float("inf"), 2.0]
    with pytest.raises(ValueError, match="3 values of lr for 2 replicas"):
        Recipe(lr=(0.1, 0.2, 0.3)).rates_of(2)
