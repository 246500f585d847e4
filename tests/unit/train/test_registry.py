"""What registries know of what can be chosen: the types and bounds of its options, and their other names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import pytest

from pycollectives.testing import run_ranks
from pycollectives.train.agreement import require_same_settings
from pycollectives.train.optimizers import OPTIMIZERS
from pycollectives.train.registry import Choice, Registry
from pycollectives.train.settings import Settings
from pycollectives.train.values import AtLeast, Size

if TYPE_CHECKING:
    from pathlib import Path as Unknown


class Thing:
    """Options of each kind of type."""

    def __init__(
        self,
        *,
        many: Size = 1,
        few: Annotated[int, AtLeast(-2)] | None = None,
        either: str | float = "",
        flag: bool | None = None,
        share: float = 0.0,
        unknown: Unknown | None = None,
        hidden: int = 0,
        plain=None,
    ) -> None:
        self.options = {"many": many, "few": few, "either": either, "flag": flag, "share": share}
        self.rest = (unknown, hidden, plain)


class Derived(Thing):
    """Takes its options from another class."""


def of_types(*, size: "Size", ratio: float = 1.0) -> None:  # noqa: UP037 - a text within a text
    """A function, one of whose annotations is a text twice."""


def named(*, rate: float = 0.0) -> float:
    return rate


def with_its_own_lr(*, lr: float = 0.0, rate: float = 0.0) -> tuple[float, float]:
    return lr, rate


def without_rate(*, speed: float = 0.0) -> float:
    return speed


NAMES = ("Thing", "Derived", "of_types", "named", "with_its_own_lr", "without_rate")
THINGS = Registry("thing", {name: f"{__name__}:{name}" for name in NAMES}, aliases={"lr": "rate"})


@pytest.mark.parametrize("name", ["Thing", "Derived"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("many", 1),
        ("few", -2),
        ("few", None),
        ("either", "a"),
        ("either", 2),
        ("flag", True),
        ("flag", None),
        ("share", 3),
        ("unknown", object()),
        ("plain", object()),
        ("hidden", -5),
    ],
)
def test_values_that_fit(name, option, value):
    assert THINGS.find(Choice(name, {option: value})) is globals()[name]


@pytest.mark.parametrize("name", ["Thing", "Derived"])
@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("many", 0, "many: expected at least 1, got 0"),
        ("many", True, "many: expected a whole number, got True"),
        ("many", None, "many: expected a whole number, got None"),
        ("few", -3, "few: expected at least -2, got -3"),
        ("few", 1.5, r"few: expected a whole number, got 1\.5"),
        ("either", True, r"either: expected a word .* or a number, got True"),
        ("flag", 1, "flag: expected true or false, got 1"),
        ("share", np.inf, "share: expected a number, got inf"),
        ("hidden", "1", "hidden: expected a whole number, got '1'"),
    ],
)
def test_values_that_do_not_fit(name, option, value, text):
    with pytest.raises(ValueError, match=f"^thing '{name}': {text}$"):
        THINGS.find(Choice(name, {option: value}))


def test_the_options_of_a_function():
    with pytest.raises(ValueError, match="'of_types': size: expected a whole number, got 'x'"):
        THINGS.find(Choice("of_types", {"size": "x"}))
    with pytest.raises(ValueError, match="'of_types': needs the option 'size'"):
        THINGS.make(Choice("of_types", {"ratio": 2}))


# --- Other names of options


def test_an_alias_is_the_option():
    assert THINGS.make(Choice("named", {"lr": 0.5})) == 0.5
    assert THINGS.canonical(Choice("named", {"lr": 0.5})) == Choice("named", {"rate": 0.5})
    with pytest.raises(ValueError, match=r"^thing 'named': rate: expected a number, got 'high'$"):
        THINGS.find(Choice("named", {"lr": "high"}))


def test_an_alias_that_is_an_option_of_its_own_stays():
    assert THINGS.make(Choice("with_its_own_lr", {"lr": 0.5, "rate": 0.25})) == (0.5, 0.25)


def test_an_alias_of_an_option_that_is_not_there_is_unknown():
    with pytest.raises(ValueError, match=r"unknown option 'rate'; its options are speed"):
        THINGS.find(Choice("without_rate", {"lr": 0.5}))


def test_an_option_and_its_alias_are_refused():
    both = Choice("named", {"rate": 0.5, "lr": 0.5})
    with pytest.raises(ValueError, match=r"^thing 'named': expected rate or lr, its other name, got both$"):
        THINGS.find(both)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_the_learning_rate_is_lr_as_well(name):
    weights = [np.ones(1, np.float32) for _ in range(2)]
    for array, key in zip(weights, ("rate", "lr"), strict=True):
        optimizer = OPTIMIZERS.make(Choice.parse(f"{name},{key}=0.25"), array, lambda number: 1.0)
        optimizer.update(array, np.ones(1, np.float32), 0)
    assert weights[0] == weights[1] == 0.75


@pytest.mark.parametrize("said", ["sgd,lr=0.1", {"name": "sgd", "lr": 0.1}, Choice("sgd", {"lr": 0.1})])
def test_settings_have_the_options_own_name(said):
    """So summaries, checkpoints and what ranks compare are the same whatever was typed."""
    settings = Settings.of({"optimizer": said})
    assert settings.as_json()["optimizer"] == {"name": "sgd", "options": {"rate": 0.1}}
    assert settings == Settings(optimizer=Choice("sgd", {"lr": 0.1})) == Settings.of({"optimizer": "sgd,rate=0.1"})


def test_ranks_may_use_either_name():
    settings = [Settings.of({"optimizer": said}) for said in ("sgd,rate=0.1", "sgd,lr=0.1")]
    run_ranks(2, lambda comm: require_same_settings(settings[comm.rank], comm, resume=False))
