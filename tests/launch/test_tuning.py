"""`python -m pycollectives tune`: a short one, and programs that use what it wrote."""

from __future__ import annotations

import json
import sys

import pytest
from launcher import Outcome, environment, launcher, mpirun, run

from pycollectives.selection.choice import SelectionTable

pytestmark = pytest.mark.alone

RANKS = 3
SIZES = [8, 65536]


def tune(*options: object, ranks: int = RANKS, **env: str) -> Outcome:
    command = [*launcher(), "-n", str(ranks), sys.executable, "-m", "pycollectives", "tune", *map(str, options)]
    outcome = run(command, limit=100, env=environment(**env))
    assert not outcome.hung
    return outcome


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A home with a table, and what was said."""
    home = tmp_path_factory.mktemp("home")
    outcome = tune("--bytes", ",".join(map(str, SIZES)), "--seconds", 12, XDG_CONFIG_HOME=str(home))
    assert outcome.status == 0
    return home / "pycollectives" / "selection.json", outcome


def test_the_table_says_what_was_measured_and_where(tuned):
    path, _ = tuned
    assert [entry.name for entry in path.parent.iterdir()] == ["selection.json"]
    document = json.loads(path.read_text())
    assert SelectionTable.from_json(document).machine is not None
    tuning = document["tuning"]
    assert tuning["ranks"] == RANKS
    assert {"date", "passes", "seconds", "versions", "ranks_per_machine"} <= tuning.keys()
    cells = {(cell["ranks"], cell["bytes"], cell["sparse"]): cell for cell in tuning["cells"]}
    assert cells.keys() == {(ranks, size, sparse) for ranks in (2, 3) for size in SIZES for sparse in (False, True)}
    for place, cell in cells.items():
        medians = {latency["algorithm"]: latency["p50"] for latency in cell["latency_us"]}
        assert {"board", "tree", "ring", "rabenseifner", "recursive_doubling"} <= medians.keys(), place
        assert all(0 < median < 1e6 for median in medians.values()), (place, medians)
        assert cell["passes"] >= 3


def test_what_is_printed(tuned):
    path, outcome = tuned
    print(outcome)
    for words in ("Latency in us", "balanced", "sparse", "64 KiB", "recursive_doubling", f"written to {path}"):
        assert words in outcome.out
    assert outcome.out.count("written to") == 1
    assert "pass 1: 8 cells" in outcome.err


def choose(path, **rows):
    """Put a row for all calls first."""
    document = json.loads(path.read_text())
    for question, answer in rows.items():
        document["allreduce"][question].insert(0, {"max_bytes": 10**9, question: answer})
    return document


def test_a_program_uses_it(tuned, tmp_path):
    """As it is, then with rows that nobody would measure: so it is this table that is used, from either place."""
    path, _ = tuned
    outcome = mpirun(RANKS, "uses_table.py", 8, XDG_CONFIG_HOME=str(path.parents[1]))
    assert outcome.status == 0
    table = SelectionTable.from_json(json.loads(path.read_text()))
    for rank in range(RANKS):
        assert outcome.said(rank) == [f"{table.choose(RANKS, nodes, 8).name} 3.0" for nodes in (RANKS, 1)]

    changed = choose(path, schedule="rabenseifner", board=False)
    home = tmp_path / "home" / "pycollectives"
    home.mkdir(parents=True)
    (home / "selection.json").write_text(json.dumps(changed))
    for place in ({"XDG_CONFIG_HOME": str(home.parent)}, {"PYC_SELECTION": str(home / "selection.json")}):
        outcome = mpirun(RANKS, "uses_table.py", 8, **place)
        assert outcome.status == 0
        for rank in range(RANKS):
            assert outcome.said(rank) == ["rabenseifner 3.0"] * 2


def test_of_another_machine_it_is_not_used_and_one_rank_says_so(tuned, tmp_path):
    path, _ = tuned
    changed = choose(path, schedule="rabenseifner")
    changed["machine"]["cpu"] = "abacus"
    home = tmp_path / "pycollectives"
    home.mkdir()
    (home / "selection.json").write_text(json.dumps(changed))
    outcome = mpirun(RANKS, "uses_table.py", 8, XDG_CONFIG_HOME=str(tmp_path))
    assert outcome.status == 0
    for rank in range(RANKS):
        assert outcome.said(rank) == ["tree 3.0", "board 3.0"]
    assert outcome.err.count("was made on abacus") == 1


def test_a_rank_with_another_table_is_named(tuned, tmp_path):
    path, _ = tuned
    other = tmp_path / "other.json"
    other.write_text(json.dumps(choose(path, segment_bytes=4096, schedule="rabenseifner")))
    outcome = mpirun(RANKS, "uses_table.py", 8, 1, other, XDG_CONFIG_HOME=str(tmp_path))
    assert outcome.status == 0
    digest = SelectionTable.from_json(json.loads(other.read_text())).digest
    for rank in range(RANKS):
        flat, board = outcome.said(rank)
        for said in (flat, board):
            assert f"selection_table: built-in on ranks 0, 2, {digest} on rank 1" in said
        assert "algorithm: tree on ranks 0, 2, rabenseifner on rank 1" in flat
        assert "segment_bytes: 65536 on ranks 0, 2, 4096 on rank 1" in board


def test_a_rank_whose_table_is_malformed_is_named(tmp_path):
    other = tmp_path / "other.json"
    other.write_text("{}")
    outcome = mpirun(RANKS, "uses_table.py", 8, 1, other, XDG_CONFIG_HOME=str(tmp_path))
    assert outcome.status != 0
    assert f"selection table {other}: format: expected 2, got None" in outcome.err
    assert "refused on rank 1: ValueError: selection table" in outcome.said(0)[0]


def test_as_json(tmp_path):
    path = tmp_path / "table.json"
    outcome = tune("--bytes", 8, "--seconds", 6, "--json", "--output", path, ranks=2)
    assert outcome.status == 0
    document = json.loads(outcome.out)
    assert document == json.loads(path.read_text())
    assert len(document["allreduce"]["schedule"]) in (4, 5)  # one more if another choice than the built-in was faster


def test_nothing_is_written_when_the_time_is_up_at_once(tmp_path):
    """Nothing is decided by less than three passes: a table with the built-in choices would hide the cost model."""
    path = tmp_path / "table.json"
    outcome = tune("--bytes", 8, "--seconds", 0.001, "--json", "--output", path, ranks=2)
    assert outcome.status == 1
    assert outcome.err.count("no table was written: the time was up") == 1
    assert outcome.out == ""
    assert not path.exists()


@pytest.mark.parametrize(("ranks", "said"), [(1, "expected at least 2 ranks, got 1"), (2, "could not be written")])
def test_what_cannot_be_done_is_said_once_and_before_measuring(tmp_path, ranks, said):
    (tmp_path / "file").write_text("")
    outcome = tune("--output", tmp_path / "file" / "table.json", ranks=ranks)
    assert outcome.status == 1
    assert outcome.err.count(said) == 1
    assert "Traceback" not in outcome.err
