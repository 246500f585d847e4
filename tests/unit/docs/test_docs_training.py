"""docs/training.md has every method, choice and key that there is, and its configuration is one."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

from pycollectives.commands.train import train
from pycollectives.train.curve import Point
from pycollectives.train.datasets import DATASETS
from pycollectives.train.models import MODELS
from pycollectives.train.optimizers import OPTIMIZERS
from pycollectives.train.registry import Choice
from pycollectives.train.replica import Step
from pycollectives.train.schedules import SCHEDULES
from pycollectives.train.settings import Settings, read_toml
from pycollectives.train.summary import Summary
from pycollectives.train.synchronizers import METHODS
from pycollectives.train.workload import WORKLOADS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "training.md").read_text()


def rows():
    """The rows of its tables, by what is in their first cells."""
    found = {}
    for line in PAGE.splitlines():
        if match := re.match(r"\| `([^`]+)` \|(.*)", line):
            found[match[1]] = match[2]
    return found


def options_of(target):
    return [one.name for one in inspect.signature(target).parameters.values() if one.kind is one.KEYWORD_ONLY]


def test_every_option_has_a_text_on_the_page_of_the_command_line():
    assert "train --help`](cli.md)" in PAGE
    assert not [one.opts[0] for one in train.params if isinstance(one, click.Option) and not one.help]


def test_the_defaults():
    default = Settings()
    said = {name[2:]: cell.split("|")[0].strip(" `") for name, cell in rows().items() if name.startswith("--")}
    assert said == {name: str(getattr(default, name)) for name in ("model", "data", "optimizer", "schedule", "load")}


@pytest.mark.parametrize("name", METHODS.names)
def test_every_method_and_its_options(name):
    row = rows()[name]
    assert [option for option in options_of(METHODS.find(Choice(name))) if f"`{option}`" not in row] == []


@pytest.mark.parametrize("registry", [MODELS, DATASETS, OPTIMIZERS, SCHEDULES, WORKLOADS], ids=lambda one: one.kind)
def test_every_choice_and_its_options(registry):
    row = rows()[f"--{registry.kind}"]
    ours = [name for name, target in registry._entries.items() if target.startswith("pycollectives.")]
    assert ours
    for name in ours:  # other tests may have added some
        assert f"`{name}`" in row
        if registry is MODELS:
            continue  # some need PyTorch
        options = [option for option in options_of(registry.find(Choice(name))) if option != "seed"]
        assert [option for option in options if not re.search(rf"`{option}[`=]", row)] == []


@pytest.mark.parametrize("kind", [Step, Summary, Point], ids=lambda kind: kind.__name__)
def test_every_key_that_is_written(kind):
    written = PAGE.partition("## What is written")[2].partition("\n## ")[0]
    assert [one.name for one in fields(kind) if f"`{one.name}`" not in written] == []


def test_the_configuration(tmp_path):
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "job.toml").write_text(block)
    settings = Settings.of(read_toml(tmp_path / "job.toml"))
    assert settings.load == Choice("one-late", {"work": 0.1, "skew": 0.3})
    for registry, choice in ((METHODS, settings.method), (OPTIMIZERS, settings.optimizer)):
        registry.find(choice)
