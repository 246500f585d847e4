"""Commands that run below a launcher write no ANSI codes, whatever terminal the launcher gives them."""

from __future__ import annotations

import sys

import pytest
from launcher import environment, launcher, run


@pytest.mark.parametrize("command", ["info", "experiments list", "simulate --load one-late -n 8 --calls 20"])
def test_no_ansi_codes_in_a_pipe(command):
    words = [*launcher(), "-n", "1", sys.executable, "-m", "pycollectives", *command.split()]
    outcome = run(words, limit=60, env=environment(TERM="xterm-256color"))
    assert outcome.status == 0
    assert len(outcome.out.splitlines()) > 3
    assert "\x1b" not in outcome.out + outcome.err
