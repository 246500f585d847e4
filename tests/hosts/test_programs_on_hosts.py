"""Programs that check themselves, each on the shapes of hosts that it names.

Adding one is a file in tests/hosts/programs, with a line "Shapes: 2x2, 4x1 at 100mbit." in its docstring. Each rank
prints "rank R: right" as its last line, or raises.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from on_hosts import launched, ranks_of

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def shapes_of(program: Path) -> list[tuple[str, str | None]]:
    """Return the shapes that a program is for, each with the rate of the links."""
    line = re.search(r"^Shapes: (.*)\.$", program.read_text(), re.MULTILINE)
    words = [] if line is None else [shape.split(" at ") for shape in line[1].split(", ")]
    return [(shape, *rate) if rate else (shape, None) for shape, *rate in words]


CASES = [(program, *case) for program in PROGRAMS for case in shapes_of(program)]


@pytest.mark.parametrize(
    ("program", "shape", "rate"), CASES, ids=lambda value: value.stem if isinstance(value, Path) else str(value or "")
)
def test_program(program, shape, rate):
    job = launched(shape, program, rate=rate)
    assert job.status == 0, job
    for rank in range(ranks_of(shape)):
        assert job.said(rank)[-1:] == ["right"], job
