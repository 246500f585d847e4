"""`experiments list` has the benchmarks that repeat figures of the papers, with commands that exist."""

import re
import runpy
import sys
from pathlib import Path

import click
import pytest

from pycollectives.__main__ import main
from pycollectives.experiments.benchmarks import MEASURED
from pycollectives.experiments.experiment import catalogue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))
PAPERS = "eager-SGD|Hop|Ripples|AD-PSGD|ElasticBSP"


def numbers(text):
    """The figures and tables of a text: "Figs. 8 and 9" are Fig 8 and Fig 9, "Figs. 12 to 18" seven."""
    found = set()
    for kind, first, others in re.findall(r"(Fig|Table)s?\.? (\d+)((?:(?:, | and | to )\d+)*)", text):
        end = int(first)
        found.add((kind, end))
        for word, number in re.findall(r"(, | and | to )(\d+)", others):
            found |= {(kind, each) for each in range(end if word == " to " else int(number), int(number) + 1)}
            end = int(number)
    return found


def test_numbers_of_a_text():
    assert numbers("Figs. 8 and 9; Tables 3, 5 to 6, Fig. 12") == {
        ("Fig", 8), ("Fig", 9), ("Fig", 12), ("Table", 3), ("Table", 5), ("Table", 6),
    }  # fmt: skip


@pytest.mark.parametrize("script", sorted(BENCH.glob("[a-z]*.py")), ids=lambda script: script.stem)
def test_the_figures_that_a_benchmark_names_are_listed(script):
    first = script.read_text().removeprefix('"""').splitlines()[0]
    listed = " ".join(of.figure for of in MEASURED if of.command.split()[1] == script.stem)
    assert bool(re.search(PAPERS, first)) <= bool(listed)
    if listed and script.stem != "latency":
        assert re.search(PAPERS, first), "its first line names the paper"
    assert numbers(first) <= numbers(listed)


def test_the_figures_of_all_claims_that_were_tried_are_listed():
    """But for theorems, which tests try."""
    listed = [part.strip() for of in (*catalogue(), *MEASURED) for part in of.figure.split(";")]
    for paper, claims in tomllib.loads((BENCH.parent / "docs" / "claims.toml").read_text()).items():
        places = "; ".join(of["place"] for of in claims if "ours" in of and "Theorem" not in of["place"])
        assert numbers(places)
        assert numbers(places) <= numbers("; ".join(part for part in listed if part.lower().startswith(paper)))


@pytest.mark.parametrize("of", MEASURED, ids=lambda of: of.command)
def test_a_listed_command_exists(of):
    command, name, *options = of.command.split()
    if command == "topology":
        main.commands["topology"].make_context("topology", [name, *options])
        return
    made = runpy.run_path(str(BENCH / f"{name}.py"))
    (found,) = (each for each in made.values() if isinstance(each, click.Command) and each.name == name)
    assert found.make_context(name, options).params
