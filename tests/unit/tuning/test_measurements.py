"""What follows from medians: when a choice changes, and which sizes and ranks a measurement speaks for."""

import pytest

from pycollectives.selection.choice import Choice, Row, SelectionTable
from pycollectives.tuning.derivation import Cell, decide, derive, reaches

BOARD = Choice(True, None, 65536)
SMALL = Choice(True, None, 16384)
TREE, RING = Choice(False, "tree"), Choice(False, "ring")
DEFAULT = SelectionTable((Row("tree"),))


def cell(ranks=4, nbytes=8, sparse=False, *, board=1.0, tree=2.0, ring=2.0, small=None, passes=5):
    seconds = {BOARD: board, TREE: tree, RING: ring, SMALL: small}
    return Cell(ranks, nbytes, sparse, {choice: [s] * passes for choice, s in seconds.items() if s is not None})


def decided(**options):
    decision = decide(cell(**options), DEFAULT)
    return decision.schedule, decision.board, decision.segment_bytes, decision.chosen.name


def test_the_default_stays_where_nothing_is_faster():
    assert decided() == (None, None, None, "board")


@pytest.mark.parametrize(("ring", "schedule"), [(1.81, None), (1.79, "ring")])
def test_a_schedule_must_be_a_tenth_faster(ring, schedule):
    assert decided(ring=ring) == (schedule, None, None, "board")


@pytest.mark.parametrize(("ring", "board"), [(0.91, None), (0.89, False)])
def test_messages_must_beat_the_board_by_a_tenth(ring, board):
    assert decided(ring=ring) == ("ring", board, None, "ring" if board is False else "board")


def test_messages_by_the_default_schedule_may_beat_the_board():
    assert decided(tree=0.5) == (None, False, None, "tree")


@pytest.mark.parametrize(("small", "segment"), [(0.91, None), (0.89, 16384)])
def test_a_segment_must_be_a_tenth_faster(small, segment):
    assert decided(small=small) == (None, None, segment, "board")


def test_messages_are_compared_with_the_best_segment():
    assert decided(ring=0.8, small=0.7) == ("ring", None, 16384, "board")


def test_two_passes_decide_nothing():
    assert decided(ring=0.1, passes=2) == (None, None, None, "board")
    assert decided(ring=0.1, passes=3) == ("ring", False, None, "ring")


def test_noise_widens_the_margin():
    noisy = {TREE: [2.0] * 5, RING: [1.0, 1.1, 1.6, 2.0, 2.4]}
    assert Cell(4, 8, False, noisy).spread(RING) == pytest.approx(0.9 / 1.6)
    assert decide(Cell(4, 8, False, noisy), DEFAULT).schedule is None
    steady = {TREE: [2.0] * 5, RING: [1.6] * 5}
    assert decide(Cell(4, 8, False, steady), DEFAULT).schedule == "ring"


def test_ranks_of_several_machines_have_no_board():
    decision = decide(cell(board=None, ring=1.0), DEFAULT)
    assert (decision.schedule, decision.board, decision.chosen) == ("ring", None, RING)


def test_a_default_that_was_not_measured_stays():
    assert decided(tree=None, ring=0.1)[0] is None


def test_what_a_number_speaks_for():
    assert reaches([8, 32, 128], short=8, long=128) == [(None, 16), (17, 64), (65, None)]
    assert reaches([8, 8192]) == [(2, 32), (2048, 32768)]
    assert reaches([100], short=8, long=1000) == [(25, 400)]


def test_the_default_follows_what_was_measured():
    assert (
        derive([cell()], DEFAULT, among="ranks", source="test").as_json()["allreduce"]
        == (DEFAULT.as_json()["allreduce"])
    )
    assert derive([], DEFAULT, among="ranks", source="test").schedule == DEFAULT.schedule


def cells(faster, counts=(2, 4, 8), sizes=(8, 32, 128, 512)):
    """All cells; the ring is faster than the tree where `faster` says so."""
    return [
        cell(ranks, nbytes, sparse, ring=1.5 if faster(ranks, nbytes, sparse) else 2.0)
        for ranks in counts
        for nbytes in sizes
        for sparse in (False, True)
    ]


def schedules(faster, **options):
    return derive(cells(faster, **options), DEFAULT, among="ranks", source="test").schedule[:-1]


def test_neighbours_with_the_same_answer_are_one_row():
    assert schedules(lambda ranks, nbytes, sparse: True) == (Row("ring", 2, 8, None, 2048, None, "ranks"),)
    assert schedules(lambda ranks, nbytes, sparse: nbytes in (32, 128)) == (Row("ring", 2, 8, 17, 256, None, "ranks"),)
    assert schedules(lambda ranks, nbytes, sparse: ranks >= 4) == (Row("ring", 3, 8, None, 2048, None, "ranks"),)
    assert schedules(lambda ranks, nbytes, sparse: sparse) == (Row("ring", 2, 8, None, 2048, True, "ranks"),)
    assert schedules(lambda ranks, nbytes, sparse: ranks == 4 and nbytes == 32 and not sparse) == (
        Row("ring", 3, 5, 17, 64, False, "ranks"),
    )


@pytest.mark.parametrize("seed", range(30))
def test_every_cell_gets_what_was_decided_for_it(seed):
    """Whatever the pattern, and however its rows are joined."""

    def faster(ranks, nbytes, sparse):
        return hash((seed, ranks, nbytes, sparse)) % 3 > 0

    measured = cells(faster, counts=(2, 4, 6), sizes=(8, 1024, 8192, 1 << 22))
    table = derive(measured, DEFAULT, among="ranks", source="test")
    again = SelectionTable.from_json(table.as_json())
    for one in measured:
        chosen = again.choose(one.ranks, one.ranks, one.nbytes, sparse=one.sparse).schedule
        assert chosen == ("ring" if faster(one.ranks, one.nbytes, one.sparse) else "tree"), one
        assert again.choose(one.ranks, 1, one.nbytes, sparse=one.sparse).name == "board"
    assert again.choose(7, 7, 8).schedule == "tree"  # more ranks than were measured


def test_boards_and_segments_have_rows_of_their_own():
    measured = [
        cell(4, nbytes, small=0.5 if nbytes > 8 else None, ring=0.1 if nbytes == 8 else 2.0) for nbytes in (8, 1 << 22)
    ]
    table = derive(measured, DEFAULT, among=None, source="test")
    assert table.board == (Row(False, 4, 4, None, 32, False), Row(True))
    assert table.segment_bytes == (Row(16384, 4, 4, 1 << 20, None, False), Row(65536))
    assert table.schedule == (Row("ring", 4, 4, None, 32, False), Row("tree"))


def test_all_medians_are_kept():
    assert cell(board=1e-6, tree=2e-6, ring=None, small=3e-6, passes=3).as_json() == {
        "ranks": 4,
        "bytes": 8,
        "sparse": False,
        "passes": 3,
        "latency_us": [
            {"algorithm": "board", "segment_bytes": 65536, "p50": 1.0, "spread": 0.0},
            {"algorithm": "tree", "p50": 2.0, "spread": 0.0},
            {"algorithm": "board", "segment_bytes": 16384, "p50": 3.0, "spread": 0.0},
        ],
    }
