"""Agreement at creation: a mistake on one rank is an error on every rank, and nobody waits for ever."""

import threading
from dataclasses import dataclass, field

import pytest

from pycollectives import MismatchError, StallError
from pycollectives.agreement.consistency import MAX_REFUSAL, agree, describe_ranks


class Exchanges:
    """A comparison among threads that gives up, as an engine does, when ranks stay away."""

    def __init__(self, size):
        self.told = [None] * size
        self.barrier = threading.Barrier(size)

    def engine(self, rank):
        return Engine(self, rank)


@dataclass
class Engine:
    exchanges: Exchanges
    rank: int
    calls: list = field(default_factory=list)

    def compare(self, mine, *, what, timeout=None):
        assert len(mine) <= 4096
        self.calls.append(what)
        self.exchanges.told[self.rank] = mine
        try:
            self.exchanges.barrier.wait(timeout)
        except threading.BrokenBarrierError:
            raise StallError(f"{what}: some ranks did not call") from None
        return None if len(set(self.exchanges.told)) == 1 else list(self.exchanges.told)


class Arguments(dict):
    def signature(self):
        return self


def on_ranks(*makes, what="create", timeout=10.0):
    """What `agree` does on each rank: its result or its exception."""
    exchanges = Exchanges(len(makes))
    outcomes = [None] * len(makes)

    def run(rank, make):
        call = what[rank] if isinstance(what, list) else what
        try:
            outcomes[rank] = agree(exchanges.engine(rank), call, make, timeout=timeout)
        except Exception as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(makes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return outcomes


def having(**arguments):
    return lambda: Arguments(arguments)


def refusing(error):
    def make():
        raise error

    return make


def test_equal_arguments_are_returned():
    assert (
        on_ranks(*[having(count=3, name="x", max_staleness=None)] * 4)
        == [{"count": 3, "name": "x", "max_staleness": None}] * 4
    )


def test_every_rank_hears_who_differs():
    outcomes = on_ranks(having(count=10), having(count=10), having(count=10), having(count=12))
    assert {type(outcome) for outcome in outcomes} == {MismatchError}
    assert {str(outcome) for outcome in outcomes} == {"create: arguments differ: count: 10 on ranks 0-2, 12 on rank 3"}


def test_all_fields_that_differ_and_no_other():
    (first, *_) = on_ranks(having(count=1, op="SUM", late="drop"), having(count=2, op="MAX", late="drop"))
    assert str(first) == "create: arguments differ: count: 1 on rank 0, 2 on rank 1; op: SUM on rank 0, MAX on rank 1"


def test_a_refusal_is_raised_where_it_arose_and_quoted_elsewhere():
    mistake = TypeError("expected float32, got float64")
    outcomes = on_ranks(having(count=1), refusing(mistake), having(count=1))
    assert outcomes[1] is mistake
    for rank in (0, 2):
        assert type(outcomes[rank]) is MismatchError
        assert str(outcomes[rank]) == "create: refused on rank 1: TypeError: expected float32, got float64"


def test_the_same_refusal_on_all_ranks():
    mistakes = [ValueError("expected 1 <= k <= 2, got 3") for _ in range(2)]
    assert on_ranks(*map(refusing, mistakes)) == mistakes


def test_different_calls():
    outcomes = on_ranks(having(count=1), having(size=2), what=["partial_allreduce", "Allreduce_init"])
    assert {str(outcome) for outcome in outcomes} == {
        "partial_allreduce: ranks make different calls: partial_allreduce on rank 0, Allreduce_init on rank 1",
        "Allreduce_init: ranks make different calls: partial_allreduce on rank 0, Allreduce_init on rank 1",
    }


def test_a_rank_that_stays_away():
    exchanges = Exchanges(2)
    with pytest.raises(StallError):
        agree(exchanges.engine(0), "create", having(count=1), timeout=0.05)


def test_a_rank_that_stays_away_does_not_hide_a_mistake():
    exchanges = Exchanges(2)
    with pytest.raises(TypeError, match="wrong"):
        agree(exchanges.engine(0), "create", refusing(TypeError("wrong")), timeout=0.05)


def test_arguments_that_are_too_long_to_be_compared():
    outcomes = on_ranks(having(count=1), having(names="x" * 5000))
    assert type(outcomes[1]) is ValueError
    assert str(outcomes[0]).startswith(
        "create: refused on rank 1: ValueError: create: expected arguments of at most 4096"
    )


@pytest.mark.parametrize("character", ["x", "ü", "\x01", "\N{SNOWMAN}"])
def test_long_refusals_fit_into_an_exchange(character):
    outcomes = on_ranks(having(count=1), refusing(ValueError(character * 10_000)))
    assert [type(outcome) for outcome in outcomes] == [MismatchError, ValueError]
    assert len(str(outcomes[0])) < MAX_REFUSAL + 100


def test_many_different_values_are_not_all_listed():
    outcomes = on_ranks(*[having(count=count) for count in range(20)])
    assert "7 on rank 7, and 12 more" in str(outcomes[0])


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([4], "rank 4"), ([0, 1], "ranks 0-1"), ([0, 2, 3, 4, 9], "ranks 0, 2-4, 9"), ([1, 3], "ranks 1, 3")],
)
def test_ranks_in_words(ranks, text):
    assert describe_ranks(ranks) == text


def test_names_that_only_some_ranks_give():
    (first, *_) = on_ranks(having(a=1, c=2), having(b=1, c=2), having(a=1, c=2))
    assert str(first) == (
        "create: arguments differ: a: 1 on ranks 0, 2, not given on rank 1; b: not given on ranks 0, 2, 1 on rank 1"
    )
    (first, *_) = on_ranks(having(c=2), having(b=1, c=2))
    assert str(first) == "create: arguments differ: b: not given on rank 0, 1 on rank 1"


def test_values_that_have_no_hash():
    (first, *_) = on_ranks(having(sizes=[1, 2]), having(sizes=[1, 3]))
    assert str(first) == "create: arguments differ: sizes: [1, 2] on rank 0, [1, 3] on rank 1"
