"""The programs that pages of the documentation begin with, on several ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launcher import mpirun

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("page", ["README.md", "docs/between-steps.md", "docs/torch.md"])
def test_the_program_of_a_page(page, ranks, tmp_path):
    if page == "docs/torch.md":
        pytest.importorskip("torch")
    (program, *_) = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    outcome = mpirun(ranks, str(tmp_path / "program.py"), limit=60, PYC_STALL_WARNING="10")
    assert (outcome.status, outcome.err) == (0, ""), outcome
    if page == "README.md":
        total = f"{10 * ranks}."
        assert outcome.out.count(f"[{total} {total} {total} {total}]") == ranks, outcome
