"""When a warm-up is over, on times that are given."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from common import timing
from common.timing import Procedure
from common.warmup import MOST, is_stationary

CALLS = 200

LATENCIES = {  # by name: of all calls, and how many the warm-up takes
    "constant": (np.ones(CALLS), 16),
    "the first eight are five times as slow": (np.r_[np.full(8, 5.0), np.ones(CALLS - 8)], 24),
    "the first alone is slow": (np.r_[100.0, np.ones(CALLS - 1)], 16),
    "getting faster by a tenth with each call, up to the thirtieth": (
        np.maximum(0.9 ** np.arange(CALLS), 0.9**30),
        40,
    ),
    "getting faster all the time": (0.9 ** np.arange(CALLS), MOST),
    "getting slower": (1.05 ** np.arange(CALLS), 16),
    "noise of a fifth": (1 + 0.2 * np.sin(np.arange(CALLS) ** 2), 16),
}


@pytest.mark.parametrize("name", LATENCIES)
def test_the_warmup_ends_when_calls_have_stopped_getting_faster(name):
    latencies, expected = LATENCIES[name]
    over = [calls for calls in range(1, MOST + 1) if is_stationary(latencies[:calls])]
    assert (over[0] if over else MOST) == expected


class OneRank:
    """What `measure` uses of a communicator."""

    rank, size = 0, 1

    def reduce(self, value):
        return value

    def bcast(self, value):
        return value

    def gather(self, value):
        return [value]


class Clock:
    """Stands for the module `time`: only the timed call takes any."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Timed:
    """Its calls last as given, the same in each block."""

    def __init__(self, clock: Clock, latencies) -> None:
        self._clock = clock
        self._latencies = latencies
        self.checked: list[list[int]] = []

    def open(self, block, calls):
        assert calls == MOST + 5
        self.checked.append([])
        return self._call

    def _call(self) -> None:
        self._clock.now += self._latencies[len(self.checked[-1])]

    def prepare(self, call) -> None:
        assert call == len(self.checked[-1])

    def check(self, call, answer) -> None:
        self.checked[-1].append(call)

    def close(self) -> None:
        pass


class NoBarrier:
    def wait(self, rest_until: float = 0.0) -> None:
        pass


@pytest.mark.parametrize("name", LATENCIES)
def test_what_is_counted_comes_after_the_warmup(name, monkeypatch):
    latencies, warmup = LATENCIES[name]
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(timing, "_on_one_machine", lambda comm: True)
    subject = Timed(clock, latencies)
    delays = np.zeros((4 * (MOST + 5), 1))
    procedure = Procedure(NoBarrier(), delays, lambda seconds: None, 20, MOST, until_stationary=True)
    (samples,) = timing.measure(OneRank(), [subject], procedure)
    assert samples.warmups == (warmup,) * 4
    assert samples.stationary == (warmup < MOST)
    np.testing.assert_allclose(samples.latencies, [np.tile(latencies[warmup : warmup + 5], 4)], rtol=1e-6, atol=1e-9)
    assert subject.checked == [list(range(warmup + 5))] * 4


def test_a_warmup_of_a_given_length_is_not_shortened(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(timing, "_on_one_machine", lambda comm: True)
    procedure = Procedure(NoBarrier(), np.zeros((4 * (MOST + 5), 1)), lambda seconds: None, 20, MOST)
    (samples,) = timing.measure(OneRank(), [Timed(clock, np.ones(CALLS))], procedure)
    assert samples.warmups == (MOST,) * 4
    assert samples.stationary
