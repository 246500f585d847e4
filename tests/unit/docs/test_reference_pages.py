"""What the reference pages list is what there is: variables, constants, tests, and words in their order."""

from __future__ import annotations

import functools
import re

import pytest
from source_texts import ROOT, source, texts_of_python

DOCS = ROOT / "docs"


def test_every_variable_is_on_the_page_and_no_other():
    texts = " ".join([source(), *texts_of_python(ROOT / "setup.py")])
    read = set(re.findall(r"\bPYC_[A-Z0-9_]*[A-Z0-9]\b", texts))
    assert set(re.findall(r"^\| `(PYC_\w+)`", (DOCS / "environment.md").read_text(), re.MULTILINE)) == read


def test_there_is_one_table_of_variables():
    pages = [page.name for page in DOCS.glob("*.md") if re.search(r"^\| `PYC_", page.read_text(), re.MULTILINE)]
    assert pages == ["environment.md"]


NUMBERS = {
    "a waiting call warns on stderr": r"PYC_STALL_WARNING.*\n.*return (\d+);",
    "a program that has ended continues": r'"PYC_EXIT_TIMEOUT", "(\d+)"',
    "`MPI_Finalize` does not return": r'"PYC_EXIT_TIMEOUT", "(\d+)"',
    "`pycollectives.testing.loopback`": r"timeout: float \| None = (\d[\d.]*)",
    "`pycollectives.testing.run_ranks`": r"timeout: float = (\d[\d.]*),",
    "`python -m pycollectives dump`": r'"--timeout",\n\s+default=([\d.]+)',
    "`python -m pycollectives tune`": r'"--seconds",\n\s+default=([\d.]+)',
    "`ddp`: an operation of gloo": r"TIMEOUT = timedelta\(minutes=(\d+)\)",
    "`train`: a rank that failed waits": r"PATIENCE_S = ([\d.]+)",
    "SLURM: the job gets a signal": r"signal_before: int = attrs.field\(default=(\d+)",
    "SLURM: SIGUSR1 ends a program": r"starts_within: int = attrs.field\(default=(\d+)",
    "SLURM: ranks continue": r"--wait=(\d+)",
    "a rank asks the others": r"kAnswerTime = ([\d.]+);",
    "a rank that stops waiting for a creation": r"kAnswerTime = ([\d.]+);",
    "a rank that gave up checks": r"kArrivalTime = ([\d.]+);",
    "a waiting rank checks": r"kCheckPeriod = ([\d.]+);",
    "a call that does not wait makes": r"kLookPeriod = (\d+);",
    "MPI or the shared memory reports": r"kLooks = (\d+);\n.*milliseconds\(5\)",
    "signals such as Ctrl-C": r"kInterruptPeriod = ([\d.]+);",
    "collectives created on a communicator": r"kTagStride = (\d+);",
    "arguments that ranks compare": r"MAX_TEXT = (\d+)",
    "the name of a collective": r"MAX_NAME = (\d+)",
    "steps of `PartialReduce.average`": r"END_OF_STEPS = 1 << (\d+)",
    "rounds in the flight record": r'"PYC_FLIGHT_ROUNDS"\) or "(\d+)"',
    "contributors of a round": r"kWords = (\d+);  // of the bitmap",
    "rounds that `PYC_CHECK=1` compares": r"KEPT_ROUNDS = (\d+)",
    "times that SLURM queues": r"max_requeues: int = attrs.field\(default=(\d+)",
}
"""How each row of docs/timeouts.md with a number begins, and where the sources have it."""
OF_THE_PAGE = {
    "MPI or the shared memory reports": lambda looks: 0.005 * looks,  # 5 ms each
    "collectives created on a communicator": lambda stride: stride - 2,
    "contributors of a round": lambda words: 64 * words,
}
"""What the page shows of the number in the sources; in other rows, the number itself."""
NOT_OF_THE_SOURCES = ("individual results kept",)


def rows_with_a_number() -> dict[str, str]:
    """Return the second cell of each row that has a number there, by the first."""
    rows = re.findall(r"^\| (.*?) \| (.*?) \|", (DOCS / "timeouts.md").read_text(), re.MULTILINE)
    return {what: cell for what, cell in rows if re.search(r"\d", cell) and not what.startswith(NOT_OF_THE_SOURCES)}


def test_each_number_of_the_page_on_timeouts_is_compared():
    unknown = [what for what in rows_with_a_number() if not what.startswith(tuple(NUMBERS))]
    assert not unknown


@pytest.mark.parametrize("begin", NUMBERS)
def test_the_numbers_of_the_page_on_timeouts_are_those_of_the_source(begin):
    (cell,) = (cell for what, cell in rows_with_a_number().items() if what.startswith(begin))
    found = {float(number) for number in re.findall(NUMBERS[begin], sources())}
    assert len(found) == 1, f"{NUMBERS[begin]} is in the sources as {found}"
    expected = OF_THE_PAGE.get(begin, float)(found.pop())
    assert f"{expected:g}" in re.findall(r"\d+(?:\.\d+)?", cell), cell


@functools.cache
def sources() -> str:
    """Return the texts of C++, Python, and the templates of batch scripts."""
    files = (path for folder in ("csrc", "pycollectives", "slurm") for path in (ROOT / folder).rglob("*"))
    texts = {".cc", ".h", ".py", ".j2"}
    return "\n".join(path.read_text() for path in sorted(files) if path.suffix in texts)


def test_the_tests_that_are_named_exist():
    named = set(re.findall(r"\btests/[\w/]+\.py", "".join(page.read_text() for page in DOCS.rglob("*.md"))))
    assert not [name for name in named if not (ROOT / name).exists()]


def test_a_fault_names_a_test_or_says_that_there_is_none():
    rows = re.findall(r"^\| (.*) \|$", (DOCS / "faults.md").read_text(), re.MULTILINE)
    shown = [row.split(" | ")[-1] for row in rows if not row.startswith(("what happens", "---"))]
    assert len(shown) > 30
    assert not [cell for cell in shown if not cell.startswith(("`tests/", "no test"))]


def test_the_glossary_is_in_alphabetical_order():
    words = re.findall(r"^\*\*(.+?)\*\*", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) > 40
    assert words == sorted(words, key=str.lower)
