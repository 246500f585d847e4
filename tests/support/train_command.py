"""Start `mpirun -n P python -m pycollectives train` from a test, and read its output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
from launcher import environment, launcher, run

ROOT = Path(__file__).resolve().parents[2]
RANKS = 3
EPOCHS, STEPS = 10, 80
SMALL = ["--model", "hyperplane", "--data", "hyperplane,dimensions=16,points=192,validation=32"]
SMALL += ["--batch", "24", "--epochs", str(EPOCHS), "--optimizer", "sgd,rate=0.01,momentum=0.9"]
SLOWLY = ["--load", "lognormal,work_ms=40,skew_ms=20"]
SUMMING = "eager,policy=solo,missed=sum"

OF_ONE_RANK = """
import os
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
"""
"""The beginning of a sitecustomize.py: the indented lines that follow run only on rank 1."""


def command(*arguments, ranks=RANKS, options=()):
    """Return the command; one rank needs no launcher. `options`: of the launcher."""
    prefix = [] if ranks == 1 else [*launcher(), *options, "-n", str(ranks)]
    return [*prefix, sys.executable, "-m", "pycollectives", "train", *map(str, arguments)]


def train(*arguments, ranks=RANKS, options=(), path=ROOT, **env):
    """Run it to its end, with modules in `path` before the installed ones."""
    found = os.pathsep.join(dict.fromkeys([str(path), str(ROOT)]))
    outcome = run(command(*arguments, ranks=ranks, options=options), limit=60, env=environment(PYTHONPATH=found, **env))
    assert not outcome.hung
    return outcome


def told(outcome, text):
    """Check that the job failed, with one line that gives the reason, on one rank."""
    assert outcome.status in (1, 2)
    (line,) = [line for line in outcome.err.splitlines() if "Error" in line]
    assert line.startswith("Error: ")
    assert text in line
    assert "Traceback" not in outcome.err


def weights_in(folder):
    """Return the weights of all ranks in a checkpoint."""
    checkpoint = folder / "checkpoint"
    files = sorted((checkpoint / (checkpoint / "latest").read_text()).glob("rank-*.npz"))
    assert len(files) == RANKS
    return [np.load(path)["weights"] for path in files]


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())
