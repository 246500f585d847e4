"""The table behind algorithm="auto"."""

import copy
import re

import pytest

from pycollectives.selection.choice import Choice, Row, SelectionTable, resolve
from pycollectives.selection.tables import built_in
from pycollectives.support.machine import Machine

KNOWN = ["rabenseifner", "recursive_doubling", "ring", "tree"]
SCHEDULES = (Row("small group", max_ranks=2), Row("short", max_bytes=100), Row("both", None, 8, None, 1000))
TABLE = SelectionTable((*SCHEDULES, Row("long")))


@pytest.mark.parametrize(
    ("ranks", "nbytes", "chosen"),
    [
        (2, 10**9, "small group"),
        (3, 100, "short"),
        (3, 101, "both"),
        (8, 1000, "both"),
        (9, 1000, "long"),
        (8, 1001, "long"),
        (3, 0, "short"),
    ],
)
def test_limits_are_inclusive_and_the_first_row_wins(ranks, nbytes, chosen):
    assert TABLE.choose(ranks, ranks, nbytes) == Choice(False, chosen)


def test_lower_limits_are_inclusive_too():
    table = SelectionTable((Row("box", 4, 8, 100, 200), Row("outside")))
    inside = {
        (ranks, nbytes)
        for ranks in (3, 4, 8, 9)
        for nbytes in (99, 100, 200, 201)
        if table.choose(ranks, ranks, nbytes).schedule == "box"
    }
    assert inside == {(4, 100), (4, 200), (8, 100), (8, 200)}


@pytest.mark.parametrize("sparse", [True, False])
def test_rows_for_sparse_rounds_for_others_and_for_all(sparse):
    for of_row, taken in ((None, True), (sparse, True), (not sparse, False)):
        table = SelectionTable((Row("row", sparse=of_row), Row("next")))
        assert table.choose(4, 4, 8, sparse=sparse).name == ("row" if taken else "next")


def test_schedules_between_boards_are_looked_up_by_nodes():
    assert TABLE.choose(ranks=64, nodes=2, nbytes=5000).name == "board+small group"
    assert TABLE.choose(ranks=64, nodes=8, nbytes=500).name == "board+both"
    assert TABLE.choose(ranks=64, nodes=64, nbytes=500).name == "long"


def test_rows_may_be_for_messages_among_ranks_or_between_boards():
    table = SelectionTable((Row("flat", among="ranks"), Row("between", among="nodes"), Row("neither")))
    assert table.choose(8, 8, 8).name == "flat"
    assert table.choose(8, 4, 8).name == "board+between"


def test_boards_and_segments_are_looked_up_by_the_ranks_of_the_fullest_node():
    table = SelectionTable((Row("ring"),), (Row(False, max_ranks=4), Row(True)), (Row(1024, max_ranks=8), Row(2048)))
    assert table.choose(ranks=16, nodes=4, nbytes=8) == Choice(False, "ring")
    assert table.choose(ranks=17, nodes=4, nbytes=8) == Choice(True, "ring", 1024)
    assert table.choose(ranks=36, nodes=4, nbytes=8) == Choice(True, "ring", 2048)
    assert table.choose(ranks=9, nodes=1, nbytes=8) == Choice(True, None, 2048)


def test_names():
    assert Choice(True, None, 65536).name == "board"
    assert Choice(True, "tree", 65536).name == "board+tree"
    assert Choice(False, "tree").name == "tree"


# --- the built-in table -----------------------------------------------------------------------------------------------


def test_the_built_in_table_has_an_answer_for_every_call():
    for ranks in (1, 2, 3, 32, 65536):
        for nbytes in (0, 8, 2**16, 2**20, 2**40):
            assert built_in().choose(ranks, ranks, nbytes).name in KNOWN
            assert built_in().choose(ranks, ranks, nbytes, sparse=True).name in KNOWN


def test_the_built_in_table_takes_the_board_wherever_a_node_has_several_ranks():
    assert built_in().choose(8, 1, 8) == Choice(True, None, 65536)
    assert built_in().choose(8, 7, 8) == Choice(True, "tree", 65536)
    assert built_in().choose(8, 2, 2**22) == Choice(True, "recursive_doubling", 65536)
    assert built_in().choose(1, 1, 8) == Choice(False, "recursive_doubling")


def test_the_built_in_table_says_where_its_numbers_come_from():
    assert built_in().source
    assert built_in().machine is None


# --- what `algorithm` means -------------------------------------------------------------------------------------------


def resolved(algorithm, ranks=4, nodes=4, known=KNOWN, table=None, nbytes=8):
    return resolve(algorithm, known, table or built_in(), ranks=ranks, nodes=nodes, nbytes=nbytes)


@pytest.mark.parametrize(
    ("algorithm", "nodes", "name"),
    [
        ("ring", 4, "ring"),
        ("ring", 1, "ring"),
        ("auto", 4, "tree"),
        ("auto", 2, "board+recursive_doubling"),
        ("auto", 1, "board"),
        ("board", 2, "board+recursive_doubling"),
        ("board", 1, "board"),
        ("board+ring", 2, "board+ring"),
        ("board+ring", 1, "board"),
    ],
)
def test_resolve(algorithm, nodes, name):
    choice = resolved(algorithm, nodes=nodes)
    assert choice.name == name
    assert choice.segment_bytes == (65536 if choice.board else None)


def test_a_board_is_taken_though_the_table_would_not():
    table = SelectionTable((Row("ring"),), (Row(False),), (Row(512),))
    assert resolved("auto", nodes=1, table=table) == Choice(False, "ring")
    assert resolved("board", nodes=1, table=table) == Choice(True, None, 512)


@pytest.mark.parametrize("algorithm", ["board", "board+ring"])
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_board_is_refused_where_no_node_has_several_ranks(algorithm, ranks):
    with pytest.raises(
        ValueError, match=r"expected nodes of several ranks \(see ranks_per_node\), got . nodes of 1 rank"
    ):
        resolved(algorithm, ranks=ranks, nodes=ranks)


@pytest.mark.parametrize("algorithm", ["rign", "", "board+", "board+rign", "board+board", "ring+board", "ring+tree"])
def test_resolve_refuses_what_the_engine_has_not(algorithm):
    said = (
        "algorithm: expected 'auto', 'board', NAME or 'board+NAME', with NAME one of rabenseifner, recursive_doubling, "
        f"ring, tree; got {algorithm!r}"
    )
    with pytest.raises(ValueError, match=re.escape(said)):
        resolved(algorithm, nodes=2)


def test_resolve_refuses_a_table_with_a_schedule_that_the_engine_has_not():
    with pytest.raises(ValueError, match="selection table built-in: expected a schedule of another; got 'tree'"):
        resolved("auto", known=["another"])


# --- documents --------------------------------------------------------------------------------------------------------

GOOD = {
    "format": 2,
    "source": "a test",
    "machine": {"cpu": "abacus", "cores": 10, "mpi": "Beads v1"},
    "allreduce": {
        "board": [{"max_ranks": 2, "board": False}, {"board": True}],
        "schedule": [{"min_bytes": 8, "sparse": False, "among": "ranks", "schedule": "ring"}, {"schedule": "tree"}],
        "segment_bytes": [{"min_ranks": 3, "max_bytes": 4, "segment_bytes": 1024}, {"segment_bytes": 2048}],
    },
    "tuning": {"anything": 1},
}


def test_a_document_and_back():
    table = SelectionTable.from_json(GOOD, "FILE")
    assert table.board == (Row(False, max_ranks=2), Row(True))
    assert table.schedule == (Row("ring", min_bytes=8, sparse=False, among="ranks"), Row("tree"))
    assert table.segment_bytes == (Row(1024, min_ranks=3, max_bytes=4), Row(2048))
    assert (table.name, table.source, table.machine) == ("FILE", "a test", Machine("abacus", 10, "Beads v1"))
    assert table.as_json() == {key: value for key, value in GOOD.items() if key != "tuning"}


def test_the_digest_is_of_what_the_table_says_not_of_where_it_comes_from():
    digest = SelectionTable.from_json(GOOD).digest
    elsewhere = {**GOOD, "source": "elsewhere", "tuning": None, "machine": None}
    assert SelectionTable.from_json(elsewhere, "FILE").digest == digest
    other = copy.deepcopy(GOOD)
    other["allreduce"]["segment_bytes"][0]["max_bytes"] = 5
    assert SelectionTable.from_json(other).digest != digest


SCHEDULE = ("allreduce", "schedule")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("format",), 1, "format: expected 2, got 1"),
        (("format",), None, "format: expected 2, got None"),
        (("formats",), 2, "formats: unknown, expected one of format, "),
        (("source",), 5, "source: expected a string, got 5"),
        (("allreduce",), None, "allreduce: missing"),
        (("allreduce",), [], "allreduce: expected an object, got []"),
        (("allreduce", "bord"), [], "allreduce.bord: unknown, expected one of board, schedule, segment_bytes"),
        (("allreduce", "board"), None, "allreduce.board: missing"),
        (("allreduce", "board"), {}, "allreduce.board: expected a list of rows, got {}"),
        (("allreduce", "board"), [], "allreduce.board: the last row must have no limits"),
        (("allreduce", "board", 0, "board"), 1, "allreduce.board[0].board: expected true or false, got 1"),
        (("allreduce", "board", 0, "among"), "ranks", "allreduce.board[0].among: unknown"),
        ((*SCHEDULE, 1, "max_bytes"), 8, "allreduce.schedule: the last row must have no limits"),
        ((*SCHEDULE, 1), "tree", "allreduce.schedule[1]: expected an object, got 'tree'"),
        ((*SCHEDULE, 1), {}, "allreduce.schedule[1].schedule: missing"),
        ((*SCHEDULE, 0, "max_byte"), 8, "allreduce.schedule[0].max_byte: unknown, expected one of schedule, min_ranks"),
        ((*SCHEDULE, 0, "answer"), "ring", "allreduce.schedule[0].answer: unknown"),
        (
            (*SCHEDULE, 0, "max_bytes"),
            "8",
            "allreduce.schedule[0].max_bytes: expected an integer of at least 0, got '8'",
        ),
        ((*SCHEDULE, 0, "max_bytes"), True, "allreduce.schedule[0].max_bytes: expected an integer"),
        ((*SCHEDULE, 0, "max_bytes"), None, "allreduce.schedule[0].max_bytes: expected an integer"),
        ((*SCHEDULE, 0, "max_bytes"), -1, "allreduce.schedule[0].max_bytes: expected an integer"),
        ((*SCHEDULE, 0, "sparse"), 0, "allreduce.schedule[0].sparse: expected true or false, got 0"),
        ((*SCHEDULE, 0, "among"), "all", "allreduce.schedule[0].among: expected 'ranks' or 'nodes', got 'all'"),
        ((*SCHEDULE, 0, "schedule"), None, "allreduce.schedule[0].schedule: expected a name, got None"),
        (
            ("allreduce", "segment_bytes", 0, "segment_bytes"),
            0,
            "allreduce.segment_bytes[0].segment_bytes: expected a multiple of 64 from 1024",
        ),
        (("machine",), "mine", "machine: expected an object, got 'mine'"),
        (("machine",), {"cpu": "abacus", "cores": 2}, "machine.mpi: missing"),
        (("machine", "cores"), "2", "machine.cores: expected an integer"),
        (("machine", "ram"), 2, "machine.ram: unknown"),
    ],
)
def test_what_is_wrong_is_named(path, value, said):
    document = copy.deepcopy(GOOD)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match="^" + re.escape(f"selection table FILE: {said}")):
        SelectionTable.from_json(document, "FILE")


@pytest.mark.parametrize("document", [None, [], "table", 2])
def test_documents_that_are_no_objects(document):
    with pytest.raises(ValueError, match="selection table FILE: the document: "):
        SelectionTable.from_json(document, "FILE")
