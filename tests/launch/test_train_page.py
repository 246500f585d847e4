"""The program of docs/training.md, on several ranks."""

from __future__ import annotations

import re
import sys

from launcher import environment, launcher, run
from train_command import RANKS, ROOT


def test_the_method_of_the_documentation(tmp_path):
    page = (ROOT / "docs" / "training.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "local.py").write_text(program)
    env = environment(PYTHONPATH=str(ROOT))
    outcome = run([*launcher(), "-n", str(RANKS), sys.executable, str(tmp_path / "local.py")], limit=60, env=env)
    assert outcome.status == 0
    assert re.fullmatch(r"63 steps, loss 0\.0\d\d, equal: True\n", outcome.out)
