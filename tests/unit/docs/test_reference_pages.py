"""What the reference pages list is what there is: variables, constants, tests, and words in their order."""

from __future__ import annotations

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


CONSTANTS = {
    "csrc/engine/whole_communicator.cc": ["kAnswerTime = 0.5;", "kArrivalTime = 0.1;"],
    "csrc/services/common/waiting.h": [
        "kAnswerTime = 0.5;",
        "kCheckPeriod = 0.25;",
        "kLooks = 200;",
        "milliseconds(5)",
    ],
    "csrc/services/partial_allreduce/board_wait.cc": ["kCheckPeriod = 0.25;"],
    "csrc/services/partial_allreduce/partial_allreduce.cc": ["kLookPeriod = 1;"],
    "csrc/engine/engine.cc": ["kInterruptPeriod = 0.05;"],
    "csrc/bindings/engine.cc": ["return 30;"],
    "csrc/transport/transport.h": ["kTagStride = 4096;", "kTurns = kTagStride - 2;"],
    "csrc/diagnostics/flight_recorder.h": ["kWords = 4;"],
    "pycollectives/support/environment.py": [
        '"PYC_EXIT_TIMEOUT", "60"',
        '"PYC_FLIGHT_ROUNDS") or "256"',
        "MOST_FLIGHT_ROUNDS = 1_000_000",
    ],
    "pycollectives/support/validation.py": ["MAX_NAME = 200"],
    "pycollectives/agreement/consistency.py": ["MAX_TEXT = 4096"],
    "pycollectives/agreement/checking.py": ["KEPT_ROUNDS = 64"],
    "pycollectives/partial_reduce/collective.py": ["END_OF_STEPS = 1 << 39"],
    "pycollectives/testing.py": ["timeout: float | None = 60.0", "timeout: float = 60.0"],
    "pycollectives/commands/dump.py": ["default=5.0"],
    "pycollectives/commands/tune.py": ["default=120.0"],
    "pycollectives/train/failing.py": ["PATIENCE_S = 3.0"],
    "pycollectives/train/torch_models/parallel.py": ["TIMEOUT = timedelta(minutes=10)"],
    "pycollectives/slurm/profiles.py": ["signal_before: int = 60", "starts_within: int = 60", "max_requeues: int = 50"],
    "slurm/templates/base.sh.j2": ["--wait=60"],
}
"""What docs/timeouts.md says in numbers; if one changes, so must the page."""


@pytest.mark.parametrize("file", CONSTANTS)
def test_the_numbers_of_the_page_on_timeouts_are_those_of_the_source(file):
    text = (ROOT / file).read_text()
    assert not [constant for constant in CONSTANTS[file] if constant not in text]


def test_the_tests_that_are_named_exist():
    named = set(re.findall(r"\btests/[\w/]+\.py", "".join(page.read_text() for page in DOCS.glob("*.md"))))
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
