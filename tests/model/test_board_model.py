"""The board's protocol and direct rounds, as the models board.pml and posts.pml, in every interleaving; and mutants.

A counterexample is shown by `spin -t -p -g -l -DRANKS=... board.pml`, run in the folder of the trail, which a failure
names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(330)

FOLDER = Path(__file__).parent
BOARD, POSTS = FOLDER / "board.pml", FOLDER / "posts.pml"
LIMIT = 300  # seconds, of one search; the longest takes 30 to 40 on a core of its own
MISSING = [command for command in ("spin", "gcc") if shutil.which(command) is None]
HOW = f"missing: {' '.join(MISSING)}; `apt-get install --no-install-recommends spin gcc libc6-dev` has them"

ASLEEP = r"invalid end state"
# What a mutant must be rejected for.
COMPLAINTS = {
    "BELL_LOOKS_FIRST": ASLEEP,
    "BELL_SEEN_LATE": ASLEEP,
    "LAST_STOPS": ASLEEP,
    "CURSOR_WITHOUT_CAS": r"assertion violated \(many",  # a claim on what is not there
    "STALE_CLAIM": r"assertion violated .*into==sum",  # a segment of a batch that has ended
    "FINISH_EARLY": r"assertion violated \(reduced==",  # a segment is skipped
    "IN_PLACE_ALWAYS": r"assertion violated .*readers\[",  # a torn read
    "RESULT_UNREFERENCED": r"assertion violated .*readers\[",
    "DEPOSIT_UNCHECKED": r"assertion violated .*delivered&content",  # delivered twice
    "PROMISE_FORGOTTEN": r"assertion violated \(kept_round",
}
INEXACT = r"assertion violated .*==taking"
COMPLAINTS_OF_JOINING = {
    "PIECE_SHARED": INEXACT,
    "BATCH_WHILE_ADDING": r"assertion violated .*into==sum",
    "COMPLETE_WHILE_ADDING": INEXACT,
    "LEFT_OVER_FORGOTTEN": INEXACT,
}

COMPLAINTS_OF_POSTS = {
    "CLOSED_LATE": r"assertion violated \(state",  # a rank that is told neither
    "POST_UNCHECKED": ASLEEP,
    "UNMARKED": ASLEEP,
    "LAST_LOOK": r"assertion violated \(outcome\[",  # of one round, two results
    "SLEEP_UNCHECKED": ASLEEP,
    "RINGS_FIRST": ASLEEP,
    "ONE_PLACE": r"assertion violated",  # what it is seen by first depends on the order of the search
}

SOLO, FULL = (), ("FULL",)
BIG = ("FULL", "CLAIM_IN_ONE")
JOINS = ("FULL", "JOINS")


@dataclass
class Outcome:
    errors: int
    states: int
    depth: int
    seconds: float
    complaint: str


def ident(value: object) -> str | None:
    return "+".join(value) or "SOLO" if isinstance(value, tuple) else None


@pytest.fixture(autouse=True)
def _tools():
    if MISSING:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(HOW)


def search(
    folder: Path,
    ranks: int,
    calls: int,
    definitions: tuple[str, ...],
    *,
    cycles: bool = False,
    of: Path = BOARD,
) -> Outcome:
    """Generate, compile and run the checker; `cycles`: look for executions without end, and not at their ends."""
    model = [f"-DRANKS={ranks}", f"-DCALLS={calls}", *(f"-D{d}" for d in definitions)]
    kind = ["-DNP", "-DNOFAIR"] if cycles else ["-DSAFETY"]
    if (ranks, calls) == (3, 2) and (cycles or definitions == BIG):
        kind += ["-O2", "-DCOLLAPSE"]  # states are compressed, without loss; the others are compiled and done sooner
    for command in (
        ["spin", "-a", *model, str(of)],
        ["gcc", "-w", "-DMEMLIM=1900", *kind, "-o", "pan", "pan.c"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stdout + done.stderr
    options = ["-m10000", "-w25", *(["-l"] if cycles else [])]  # the hash table: 256 MiB
    text = subprocess.run(["./pan", *options], cwd=folder, capture_output=True, text=True, timeout=LIMIT).stdout
    found = {
        name: re.search(pattern, text)
        for name, pattern in {
            "errors": r"errors: (\d+)",
            "depth": r"depth reached (\d+)",
            "states": r"(\d+) states, stored",
            "seconds": r"elapsed time ([\d.]+)",
            "complaint": r"pan:1: (.*)",
        }.items()
    }
    assert all(found[name] for name in ("errors", "depth", "states", "seconds")), text
    outcome = Outcome(
        errors=int(found["errors"][1]),
        states=int(found["states"][1]),
        depth=int(found["depth"][1]),
        seconds=float(found["seconds"][1]),
        complaint=found["complaint"][1] if found["complaint"] else "",
    )
    for incomplete in ("max search depth too small", "out of memory", "reached -DMEMLIM", "Search not completed"):
        assert outcome.errors or incomplete not in text, text
    what = " ".join([f"{ranks} ranks, {calls} calls each", *definitions, *(["cycles"] if cycles else [])])
    print(f"\n{what}: {outcome.states} states, depth {outcome.depth}, {outcome.seconds} s {outcome.complaint}")
    return outcome


@pytest.mark.parametrize(
    ("ranks", "calls", "definitions"),
    [
        (3, 2, BIG),  # first: it takes longest
        (3, 2, SOLO),
        (2, 2, SOLO),
        (2, 2, FULL),
        (3, 1, FULL),
        (4, 1, SOLO),
        (2, 2, JOINS),
        (3, 1, (*JOINS, "CLAIM_IN_ONE")),
        # The cursor needs no batch number as long as nobody looks at a batch before the claim, and with it they may.
        (3, 2, ("MUTANT=CURSOR_WITHOUT_NUMBER",)),
        (3, 1, ("FULL", "MUTANT=EARLY_LOOK")),
    ],
    ids=ident,
)
def test_every_interleaving_keeps_the_promises_and_returns(tmp_path, ranks, calls, definitions):
    outcome = search(tmp_path, ranks, calls, definitions)
    assert outcome.errors == 0, f"{outcome.complaint}: {tmp_path}"


@pytest.mark.parametrize(
    ("ranks", "calls", "definitions"), [(3, 2, SOLO), (2, 2, FULL), (3, 1, FULL), (2, 2, JOINS)], ids=ident
)
def test_every_execution_ends(tmp_path, ranks, calls, definitions):
    """No cycle of states: with the ends of all executions being valid, every call returns, without any fairness."""
    outcome = search(tmp_path, ranks, calls, definitions, cycles=True)
    assert outcome.errors == 0, f"{outcome.complaint}: {tmp_path}"


@pytest.mark.parametrize(
    ("mutant", "definitions"),
    [*((m, SOLO) for m in COMPLAINTS), ("BELL_LOOKS_FIRST", FULL), ("LAST_STOPS", FULL), ("STALE_CLAIM", FULL)],
    ids=ident,
)
def test_a_mutant_is_rejected(tmp_path, mutant, definitions):
    outcome = search(tmp_path, 3, 2, (*definitions, f"MUTANT={mutant}"))
    assert outcome.errors == 1
    assert re.search(COMPLAINTS[mutant], outcome.complaint), outcome.complaint
    assert (tmp_path / "board.pml.trail").exists()


@pytest.mark.parametrize("mutant", COMPLAINTS_OF_JOINING)
def test_a_mutant_of_joining_is_rejected(tmp_path, mutant):
    outcome = search(tmp_path, 2, 2, (*JOINS, f"MUTANT={mutant}"))
    assert outcome.errors == 1
    assert re.search(COMPLAINTS_OF_JOINING[mutant], outcome.complaint), outcome.complaint


@pytest.mark.parametrize(
    ("ranks", "calls", "definitions", "cycles"),
    [
        (2, 3, (), False),  # a place is used again
        (2, 3, ("LEAVES",), False),
        (3, 1, ("LEAVES",), False),
        (2, 3, ("LEAVES",), True),
    ],
    ids=ident,
)
def test_every_interleaving_of_direct_rounds(tmp_path, ranks, calls, definitions, cycles):
    """A round is direct for all of its ranks or for none, and all return."""
    outcome = search(tmp_path, ranks, calls, definitions, cycles=cycles, of=POSTS)
    assert outcome.errors == 0, f"{outcome.complaint}: {tmp_path}"


@pytest.mark.parametrize("mutant", COMPLAINTS_OF_POSTS)
def test_a_mutant_of_direct_rounds_is_rejected(tmp_path, mutant):
    outcome = search(tmp_path, 2, 3, (f"MUTANT={mutant}",), of=POSTS)
    assert outcome.errors == 1
    assert re.search(COMPLAINTS_OF_POSTS[mutant], outcome.complaint), outcome.complaint
