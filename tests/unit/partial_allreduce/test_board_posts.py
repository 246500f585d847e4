"""What ranks post for direct rounds: who posts and who takes the round over, in every order of their steps."""

from itertools import permutations

import pytest

from pycollectives import _testing

STEPS = [("post", 0), ("look", 0), ("post", 1), ("look", 1), ("close", 2), ("take", 2)]


def comes_before(order, first, second):
    return order.index(first) < order.index(second)


# Each rank in its own order. `close` and `take` are of one critical section: between them others do without the mutex.
ORDERS = [
    order
    for order in permutations(STEPS)
    if all(comes_before(order, ("post", r), ("look", r)) for r in (0, 1)) and comes_before(order, STEPS[4], STEPS[5])
]


def look_under_the_mutex(posts, rank, number):
    """As a call that finds its round undecided; a post that came too late is taken back."""
    state = posts.decided(rank, number)
    return "withdrawn" if state == "open" and posts.take(rank, number) else state


@pytest.mark.parametrize("third_has_posted", [True, False], ids=["third-posted", "third-did-not"])
@pytest.mark.parametrize("number", [0, 1, 6])
def test_a_round_is_direct_for_all_or_for_none(number, third_has_posted):
    """Rank 2 takes it over: it calls again before it waits, or does something else than to post."""
    outcomes = set()
    for order in ORDERS:
        posts = _testing.Posts(3)
        for earlier in range(number):
            for rank in range(3):
                posts.post(rank, earlier, 1.0)
        if third_has_posted:
            posts.post(2, number, 1.0)
        seen = {}
        undecided = []
        taken = None
        for step, rank in order:
            if step == "post":
                posts.post(rank, number, 1.0)
            elif step == "look":
                seen[rank] = posts.state(rank, number)
                if seen[rank] == "undecided":
                    undecided.append(rank)  # it waits for the mutex
            elif step == "close":
                open_round = posts.close(2, number)
            else:
                taken = [r for r in range(3) if posts.take(r, open_round)]
        for rank in undecided:
            seen[rank] = look_under_the_mutex(posts, rank, number)
        for rank, state in seen.items():  # a call that waits
            if state in ("open", "complete"):
                later = posts.state(rank, number)
                seen[rank] = posts.decided(rank, number) if later == "undecided" else later
        if open_round == number + 1:
            assert third_has_posted
            assert set(seen.values()) == {"complete"}, order
            assert taken == []
        else:
            assert open_round == number
            assert set(seen.values()) <= {"taken", "withdrawn"}, order
            assert {r for r in (0, 1) if seen[r] == "taken"} == {r for r in taken if r < 2}
            assert (2 in taken) is third_has_posted
        outcomes.add(open_round)
    assert outcomes == ({number, number + 1} if third_has_posted else {number})


def test_a_taken_post_is_told_after_the_posts_are_open_again():
    posts = _testing.Posts(2)
    posts.post(0, 0, 1.0)
    assert posts.state(0, 0) == "open"
    assert posts.close(1, 0) == 0
    assert posts.take(0, 0)
    assert not posts.take(0, 0)
    assert not posts.take(1, 0)
    posts.reopen()
    posts.post(1, 1, 1.0)
    assert posts.state(0, 0) == "taken"
    assert posts.state(1, 1) == "open"


def test_rounds_that_are_complete():
    posts = _testing.Posts(2)
    assert [posts.completed(r) for r in (0, 1)] == [0, 0]
    for number in range(5):
        posts.post(0, number, 1.0)
        assert [posts.completed(r) for r in (0, 1)] == [number, number]
        assert posts.state(0, number) == "open"
        posts.post(1, number, 1.0)
        assert [posts.completed(r) for r in (0, 1)] == [number + 1, number + 1]
        assert [posts.state(r, number) for r in (0, 1)] == ["complete"] * 2


def test_the_initiator_is_who_called_first_and_of_several_the_lowest():
    posts = _testing.Posts(3)
    for rank, called in enumerate([3.0, 2.0, 2.0]):
        posts.post(rank, 0, called)
    assert posts.first_to_call(0) == 1


def test_a_round_that_is_complete_stays_so_while_the_posts_are_closed():
    posts = _testing.Posts(2)
    for rank in (0, 1):
        posts.post(rank, 0, 1.0)
    assert posts.completed(0) == 1
    assert posts.close(1, 0) == 1
    assert [posts.state(0, 0), posts.completed(0)] == ["undecided", 1]


def test_who_posts_too_late_completes_nothing():
    """Between the look of who closes and the mark on what he takes, all have posted."""
    posts = _testing.Posts(2)
    posts.post(0, 0, 1.0)
    assert posts.close(0, 0) == 0
    posts.post(1, 0, 1.0)
    assert [posts.completed(r) for r in (0, 1)] == [0, 0]
    assert posts.take(0, 0)
    posts.reopen()
    assert [posts.completed(r) for r in (0, 1)] == [0, 0]
