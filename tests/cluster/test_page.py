"""docs/first-job.md: its commands do what it shows, from the first to the last, in one shell.

A block ```sh is run; ```sh follow is stopped, as by Ctrl-C, when the output that is shown has come; ```python NAME is
saved as NAME; ```text is the output of the commands before it. Not run is ```sh install: the environment of this test
takes its place.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from controller import Cluster

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "first-job.md"
PROJECT = (ROOT / "pyproject.toml").read_text()

pytestmark = pytest.mark.timeout(800)


class Block(NamedTuple):
    kind: str
    text: str
    shown: str


def blocks() -> list[Block]:
    """The commands and programs of the page, each with the output that is shown for it."""
    found: list[Block] = []
    for kind, text in re.findall(r"^```(.+)\n((?:.*\n)*?)```$", PAGE.read_text(), re.MULTILINE):
        if kind == "text":
            found[-1] = found[-1]._replace(shown=text)
        else:
            found.append(Block(kind, text, ""))
    return found


def plain(text: str) -> list[str]:
    """Lines without what differs from run to run: numbers, versions, times, paths, nodes, and how they are spaced."""
    for what, pattern in ("NODES", r"\bnid[\d\[]\S*"), ("PATH", r"(?<!\S)/\S+"), ("N", r"\d[\w.:+-]*"):
        text = re.sub(pattern, what, text)
    return [" ".join(line.split()) for line in text.splitlines()]


def unseen(shown: str, printed: str) -> list[str]:
    """Return the lines of what is shown that are not the beginnings of printed lines, in that order."""
    lines = iter(plain(printed))
    return [line for line in plain(shown) if line != "..." and not any(one.startswith(line) for one in lines)]


class Shell:
    """Runs blocks one after the other: folder and variables are those that the one before left."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.state = folder / "state"
        self.state.write_text(f"cd {folder}\n")

    def run(self, block: Block) -> tuple[int, str]:
        """Return the status and what was printed."""
        keep = f"""trap '{{ echo "cd $PWD"; export -p; }} >{self.state}' EXIT"""
        output = self.folder / "output"
        with output.open("wb") as file:
            shell = subprocess.Popen(
                ["bash", "-euc", f". {self.state}\nset -a\n{keep}\n{block.text}"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,  # it and what it starts are ended together
            )
        try:
            if block.kind == "sh follow":
                Cluster.wait(lambda: not unseen(block.shown, output.read_text()), f"{block.shown} in {output}")
                return 0, output.read_text()
            return shell.wait(timeout=500), output.read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


def test_what_is_installed_is_here():
    """The environment of this test has what the commands that are not run would bring."""
    installs = [block.text for block in blocks() if block.kind == "sh install"]
    assert installs
    for line in installs:
        extras = re.findall(r" '\.\[([\w,]+)\]'", line)
        assert extras
        for extra in ",".join(extras).split(","):
            assert f"\n{extra} = [" in PROJECT
    assert metadata.version("scikit-learn")


def test_the_page(jobs):
    """Every block ends with status 0, or with the error that is shown, and prints what is shown."""
    shell = Shell(jobs.folder, {**jobs.environment, "PATH": f"{sys.prefix}/bin:{jobs.environment['PATH']}"})
    for block in blocks():
        kind, _, name = block.kind.partition(" ")
        if block.kind == "sh install":
            continue
        if kind == "python":
            (jobs.folder / "first-job" / name).write_text(block.text)
            continue
        assert kind == "sh", block.kind
        status, printed = shell.run(block)
        assert status == int(block.shown.startswith("Error: ")), f"{block.text}{printed}{jobs.logs()}"
        missing = unseen(block.shown, printed)
        assert not missing, f"not printed by\n{block.text}{missing}\nbut\n{printed}{jobs.logs()}"
