"""From where survivors take the shards of a parameter server, and which pushes they repeat."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pycollectives.servers.shards import Layout, Part, SourceState, resumption


def shard(version=5, used=(3, 3, 3, 3), *, is_broken=False):
    return {"version": version, "used": list(used), "is_broken": is_broken}


def state(member, shards, *, servers=(0, 1), direct=False, clock=3, kept=((2, 4, True), (3, 5, True)), **others):
    """Of a rank that has resumed epoch 0."""
    bounds = [0, 4, 8][: len(servers) + 1]
    parts = [Part(0, 2, [0, 0, 3, 0]), Part(2, bounds[-1], [0] * 4)]
    source = SourceState(0, Layout((0, 1, 2, 3), servers, direct), parts, bounds, 2, shards)
    values = {"member": member, "resumed": 0, "clock": clock, "kept": kept, "pulled": -1}
    return values | {"sources": [source._asdict()]} | others


def found(states, members, *, workers=(0, 1, 2, 3), is_one_node=True):
    given = SimpleNamespace(workers=workers, initial=SimpleNamespace(buffer=SimpleNamespace(dtype=np.dtype("f4"))))
    return resumption(states, members, given, is_one_node=is_one_node)


def test_living_servers_keep_their_shards():
    result = found([state(rank, [shard(), shard(6)]) for rank in (0, 1, 3)], (0, 1, 3))
    assert [(holder.rank, holder.is_in_memory) for holder in result.holders] == [(0, True), (1, True)]
    assert result.layout == Layout((0, 1, 3), (0, 1), direct=False)
    assert not result.moves
    assert result.version == 5
    assert result.clocks == {0: 3, 1: 3, 3: 3}
    assert result.bytes == 2 * 8 * 4


def test_a_survivor_of_its_node_serves_for_a_dead_server():
    result = found([state(1, [None, shard()]), state(2, [shard(), None]), state(3, [shard(), None])], (1, 2, 3))
    assert [holder.rank for holder in result.holders] == [2, 1]
    assert result.layout.servers == (1, 2)
    assert result.moves


@pytest.mark.parametrize("servers", [(0, 1), (0,)])
def test_with_too_few_survivors_there_are_fewer_shards(servers):
    shards = [shard(used=(3, 2, 3, 3)), shard(used=(3, 3, 3, 3))][: len(servers)]
    result = found([state(1, shards, servers=servers)], (1,), is_one_node=False)
    assert result.layout.servers == (1,)
    assert result.moves == (len(servers) == 2)
    assert result.clocks == {1: 2}
    assert result.parts[0] == (0, 4, [2])
    assert result.parts[1:] == ([(4, 8, [3])] if len(servers) == 2 else [])


def test_the_newest_copy_replaces_a_lost_shard():
    states = [
        state(1, [None, shard()], pulled=4, kept=((2, 4, True), (3, 5, True))),
        state(2, [None, None], pulled=5, kept=((2, 4, True), (3, None, True))),
        state(3, [None, None], pulled=3, kept=((1, 3, True), (2, 4, True), (3, 5, True))),
    ]
    result = found(states, (1, 2, 3))
    assert (result.holders[0].rank, result.holders[0].is_in_memory, result.holders[0].version) == (2, False, 5)
    assert result.holders[0].used == [0, 3, 2, 3]
    assert result.clocks == {1: 3, 2: 2, 3: 3}


def test_before_the_first_pull_the_initial_weights_replace_it():
    result = found([state(1, [None, shard()], kept=((1, 1, True),), clock=1)], (1,))
    assert (result.holders[0].is_in_memory, result.holders[0].version) == (False, 0)
    assert result.clocks == {1: 0}


def test_a_worker_repeats_what_a_shard_does_not_include():
    shards = [shard(used=(3, 1, 3, 3)), shard(used=(3, 3, 3, 3))]
    states = [state(0, shards), state(1, shards, kept=((2, 4, True), (3, None, True)))]
    result = found(states, (0, 1))
    assert result.clocks == {0: 3, 1: 1}
    parts = [(0, 4, [3, 1]), (4, 8, [3, 3])]
    assert result.parts == parts
    assert result.for_engine(9) == {"version": 5, "given": 5, "clocks": [3, 1], "parts": parts}


def test_parts_that_include_more_after_a_death_do_so_after_the_next():
    """Part 0 to 2 has three pushes of worker 2, which repeats them because of part 2 to 4."""
    shards = [shard(used=(3, 3, 1, 3)), shard(used=(3, 3, 3, 3))]
    result = found([state(2, shards, clock=3, kept=((1, 3, True), (2, 4, True), (3, None, True)))], (2,))
    assert result.parts == [(0, 2, [3]), (2, 4, [1]), (4, 8, [3])]
    assert result.clocks == {2: 1}


def test_a_newcomer_has_the_pushes_of_the_slowest():
    """Not those of the dead rank whose number it takes."""
    shards = [shard(used=(3, 1, 9, 3))] * 2
    result = found([state(0, shards), state(1, shards, clock=1, kept=())], (0, 1, 2))
    assert result.clocks == {0: 3, 1: 1, 2: 1}
    assert result.clock_of(2) == 1
    assert result.parts == [(0, 8, [3, 1, 1])]


def test_a_newcomer_takes_part_after_others_had_continued_without_its_number():
    states = [state(rank, [shard(used=(3, 3))] * 2) for rank in (0, 1)]
    for each in states:
        each["sources"][0] |= {"layout": Layout((0, 1), (0, 1), direct=False), "parts": [Part(0, 8, [0, 0])]}
    result = found(states, (0, 1, 2))
    assert result.layout.workers == (0, 1, 2)
    assert result.parts == [(0, 8, [3, 3, 3])]


def test_a_copy_includes_pushes_that_are_no_longer_kept():
    states = [state(1, [None, shard()], pulled=5, kept=((3, None, True),)), state(2, [None, None])]
    assert found(states, (1, 2)).holders[0].used == [0, 2, 3, 0]


def test_pushes_without_effect_are_not_repeated():
    """The server does not note them. Only leading ones: the numbers of later ones stay."""
    kept = ((4, 8, False), (5, 8, True), (6, 8, False))
    shards = [shard(used=(3, 3, 3, 3))] * 2
    assert found([state(0, shards, clock=6, kept=kept)], (0,)).clocks == {0: 4}
    assert found([state(0, shards, clock=4, kept=kept[:1])], (0,)).clocks == {0: 4}


def test_without_a_push_it_begins_again():
    """Some survivors may not have completed the creation, and have no state."""
    fresh = state(0, [shard(0, (0,) * 4)] * 2, clock=0, kept=())
    assert found([fresh], (0, 1)) is None
    assert found([fresh, state(1, [shard(0, (0,) * 4)] * 2)], (0, 1)) is not None
    assert found([state(0, [shard(1, (0,) * 4)] * 2, clock=0, kept=())], (0, 1)) is not None


def test_shared_weights_stay_where_they_are():
    states = [state(rank, [shard()], servers=(0,), direct=True) for rank in (2, 3)]
    result = found(states, (1, 2, 3))  # 1 is new
    assert result.layout == Layout((1, 2, 3), (2,), direct=True)
    assert not result.moves
    assert found(states, (1, 2, 3), is_one_node=False).layout == Layout((1, 2, 3), (1,), direct=False)


def test_without_a_worker_the_lowest_member_takes_its_place():
    assert found([state(0, [shard(), shard()])], (0,), workers=(3,)).layout.workers == (0,)


def test_survivors_that_had_continued_count():
    """A rank that had not yet continued has the former shards and the new ones; another has pushed to the new ones."""
    former, new = state(0, [shard(5), shard(5)]), state(1, [shard(8), shard(8)])
    new["resumed"] = new["sources"][0]["epoch"] = 1
    former["sources"].append(new["sources"][0])
    new["sources"].append(state(1, [shard(7), shard(7)])["sources"][0] | {"epoch": 2})  # made, and not used
    result = found([former, new], (0, 1))
    assert result.epoch == 1
    assert result.version == 8


def test_broken_weights_stay_broken():
    assert found([state(0, [shard(), shard(is_broken=True)])], (0,)).is_broken
    assert not found([state(0, [shard(), shard()])], (0,)).is_broken


def test_arrays_are_put_to_their_places():
    result = found([state(0, [shard(), shard()]), state(1, [shard(), shard()])], (0, 1))
    arrays = np.zeros(result.bytes, np.uint8)
    result.put(0, np.arange(8, dtype="f4").view(np.uint8), arrays)
    result.put(1, np.arange(8, 16, dtype="f4").view(np.uint8), arrays)
    assert arrays.view("f4").tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]
