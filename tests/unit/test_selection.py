"""The table behind algorithm="auto"."""

import pytest

from pycollectives.selection import Row, SelectionTable, built_in_table, resolve

KNOWN = ["rabenseifner", "recursive_doubling", "ring", "tree"]
TABLE = SelectionTable(
    (Row("small group", max_ranks=2), Row("short", max_bytes=100), Row("both", 8, 1000), Row("long")), "test"
)


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
    assert TABLE.choose(ranks, nbytes) == chosen


def test_the_built_in_table_has_an_answer_for_every_call():
    for ranks in (1, 2, 3, 32, 65536):
        for nbytes in (0, 8, 2**16, 2**20, 2**40):
            assert built_in_table().choose(ranks, nbytes) in KNOWN


def test_the_built_in_table_says_where_its_numbers_come_from():
    assert built_in_table().source


def test_resolve():
    assert resolve("ring", 4, 8, KNOWN) == "ring"
    assert resolve("auto", 4, 8, KNOWN) == built_in_table().choose(4, 8)


def test_resolve_refuses_what_the_engine_has_not():
    with pytest.raises(ValueError, match="'auto' or one of rabenseifner, recursive_doubling, ring, tree; got 'rign'"):
        resolve("rign", 4, 8, KNOWN)
    with pytest.raises(ValueError, match="got "):
        resolve("auto", 4, 8, ["another"])


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"format": 2, "allreduce": [{"algorithm": "ring"}]},
        {"format": 1},
        {"format": 1, "allreduce": []},
        {"format": 1, "allreduce": [{"algorithm": "ring", "max_bytes": 8}]},
        {"format": 1, "allreduce": [{"algorithm": "ring", "max_byte": 8}, {"algorithm": "ring"}]},
        {"format": 1, "allreduce": [{"max_bytes": 8}]},
    ],
)
def test_tables_refused(document):
    with pytest.raises(ValueError, match="selection table"):
        SelectionTable.from_json(document)
