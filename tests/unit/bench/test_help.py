"""`--help` of the benchmarks names only files that every reader has."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pycollectives.commands.bench import bench

BENCH = Path(__file__).resolve().parents[3] / "bench"
MAKEFILE = (BENCH.parent / "Makefile").read_text()
sys.path.insert(0, str(BENCH))


@pytest.mark.parametrize("script", sorted(BENCH.glob("[a-z]*.py")), ids=lambda script: script.stem)
def test_help_names_nothing_that_only_a_checkout_has(script, tmp_path, monkeypatch):
    if script.stem == "plot":
        pytest.importorskip("matplotlib")
    if script.stem == "overlap":
        pytest.importorskip("torch")
    (command,) = (
        thing
        for thing in runpy.run_path(str(script)).values()
        if isinstance(thing, click.Command) and thing.name == script.stem
    )
    monkeypatch.chdir(tmp_path)
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert text.startswith("Usage:")
    assert [target for target in re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE) if f"make {target}" in text] == []
    assert [file for file in re.findall(r"[\w./-]+\.(?:md|py|toml)\b", text) if not Path(file).exists()] == []


def test_the_file_that_explains_columns_is_named():
    file, what = CliRunner().invoke(bench, []).output.splitlines()[-1].split(" ", 1)
    assert what == "describes the options and columns"
    assert Path(file).is_file()
