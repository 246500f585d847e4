"""What the pictures of the simulators show, before it is drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))

import pictures

import pycollectives as pc
from pycollectives.simulation.parameter_server import simulate


def test_a_timeline_has_computing_and_waiting_of_each_worker():
    shown = pictures.timeline(pc.servers.BSP(), np.array([[1.0, 2.0], [2.0, 1.5]]))
    assert shown.computing == [[(0, 1), (2, 2)], [(0, 2), (2, 1.5)]]
    assert shown.waiting == [[(1, 1)], [(3.5, 0.5)]]
    assert shown.barriers == [2, 4]
    assert shown.fraction_waiting(4) == pytest.approx(1.5 / 8)
    assert shown.fraction_waiting(1.5) == pytest.approx(0.5 / 3)


@pytest.mark.parametrize("sync", [pc.servers.SSP(3), pc.servers.ElasticBSP(15)])
def test_a_timeline_says_what_the_summary_says(sync):
    work = np.repeat(np.array(pictures.INTERVALS)[:, None], 40, axis=1)
    summary = simulate(sync, work)
    assert pictures.timeline(sync, work).fraction_waiting(summary.seconds) == pytest.approx(summary.waiting_fraction)


@pytest.mark.parametrize("seed", range(5))
def test_the_least_window_is_the_barrier_of_zipline(seed):
    rows = pc.zipline.generate(10, 15, seed)
    barrier = pc.zipline.zipline_linear(rows)
    length, end = min((length, end) for end, length in pictures.windows(rows))
    assert (end, length) == (barrier.t_sync, barrier.d)


def test_there_is_a_candidate_for_each_point_once_all_workers_have_one():
    assert pictures.windows([[1, 4], [2, 6], [3, 9]]) == [(3, 2), (4, 2), (6, 3), (9, 5)]


@pytest.mark.parametrize("draw", [pictures.draw_supersteps, pictures.draw_windows])
def test_pictures_are_drawn(draw, tmp_path):
    pytest.importorskip("matplotlib")
    draw(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
