"""What the pictures of the simulators show, before it is drawn."""

from __future__ import annotations

import re
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


def test_rounds_of_a_quorum_end_with_the_second_arrival_and_name_late_calls():
    work = np.array([[1.0, 1.0], [2.0, 1.0], [3.5, 2.0]])
    shown = pictures.rounds_of(pc.Quorum(2), work)
    assert shown.calls[0] == [(0, 1, 2), (2, 3, 3)]
    assert shown.calls[2] == [(0, 3.5, 3.5)]  # the others make no third call, for which its second one waits
    assert shown.ends == [2, 3]
    assert shown.late == [(2, 3.5)]
    assert shown.steps(3.5) == 5


def test_a_quorum_makes_more_steps_than_mpi_and_solo_as_many_as_fit():
    work = pictures.workload.make("shifting", ranks=4, calls=12, work=0.1, skew=0.3, seed=1)
    full, quorum, solo = (
        pictures.rounds_of(pc.policies.parse(text), work).steps(pictures.UNTIL) for text in pictures.POLICIES.values()
    )
    assert full < quorum < solo == int((np.cumsum(work, axis=1) <= pictures.UNTIL).sum())


def test_the_advice_of_the_tree_is_in_the_table_of_methods():
    from experiment_tables import METHODS

    used = " ".join(use for _, use, _, _ in METHODS)
    advice = [result for _, answers, _ in pictures.QUESTIONS for result in answers.values()]
    words = {word for result in advice for word in re.findall(r"[\w:]*[A-Z_]\w+|skip:\d+", result)} - {"NCCL"}
    assert len(words) > 5
    assert not [word for word in words if word not in used]


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_are_drawn(name, tmp_path):
    pytest.importorskip("matplotlib")
    pictures.PICTURES[name](tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
