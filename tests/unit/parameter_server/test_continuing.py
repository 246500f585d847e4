"""The calls of a worker around a death, with a played engine; real ranks die in launch/test_continue.py."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from played_members import played_context

from pycollectives.arguments import Group, creating
from pycollectives.servers import EAMSGD, SGD
from pycollectives.servers.arguments import ParameterServerArguments
from pycollectives.servers.continuing import ContinuingServer
from pycollectives.support import native
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import ClosedError, RankFailedError

COUNT = 4


class PlayedServer:
    """The engine's side of rank 1, the only worker that pushes. A push is an update when it is released."""

    def __init__(self, engine, *, weights, workers, resumed=None, **options):
        self.workers, self.options = workers, options
        self.place = workers.index(engine.place)
        begun = resumed or {"version": 0, "given": 0, "clocks": [0] * len(workers), "parts": []}
        self.resumed, self.weights = resumed, weights
        self.clock = self.used = begun["clocks"][self.place]
        self.version, self.newest = begun["given"], begun["version"]
        self.calls, self.update_calls, self.arrays, self.bounds = [], None, 1, [0, COUNT]
        self.is_dead, self.released, self.has_left, self.is_remote = False, self.clock, False, False

    def _check(self):
        if self.is_dead:
            raise RankFailedError("rank 0 has died", [0])

    def push(self, gradient, *, timeout=None):
        self._check()
        self.clock += 1
        self.calls.append(("push", gradient[0]))
        return self.clock

    def give_up(self, *, timeout=None):
        self._check()
        self.clock += 1
        self.calls.append(("give up",))
        return self.clock

    def push_pull(self, gradient, out, *, timeout=None):
        self.push(gradient)
        self.wait(self.clock)
        self.pull(out)

    def release(self, *, update=True):
        self.released = self.clock
        self.newest += update
        self.used = self.clock

    def wait(self, clock, *, timeout=None):
        if clock > self.released:
            self._check()
            self.release()

    def test(self, clock):
        return clock <= self.released

    def pull(self, out, *, timeout=None, at_least=0):
        self._check()
        assert at_least <= self.newest
        out[:] = 100.0
        self.version = self.newest
        self.calls.append(("pull",))

    def suspend(self, *, timeout=None):
        self._check()
        self.calls.append(("suspend",))

    @property
    def outcome(self):
        return self.released, self.newest, 0, self.released > 0

    def settle(self, dead, *, timeout):
        self.dead = dead
        return True

    def included(self):
        if self.is_remote:
            return [None]
        used = [self.used if place == self.place else 0 for place in range(len(self.workers))]
        return [{"version": self.newest, "used": used, "is_broken": False}]

    def arrays_of(self, shard):
        return bytearray(np.full(COUNT, 7.0).tobytes())

    def server_statistics(self, *, timeout=None):
        return {"workers": [(place, 1, 0, 0, 0.0, 0) for place in range(len(self.workers))], "version": self.newest}

    def leave(self):
        self.has_left = True

    def statistics(self):
        return {"waited": 0.5, "memory_bytes": 8}


@pytest.fixture
def played(monkeypatch):
    """Makes a server of rank 1 of three, the rank that has it being 0, which dies; `play.cores` are the engine's."""
    play = SimpleNamespace(cores=[], dies_in_recovery=False)

    def make(sync="asp", **options):
        def make_core(engine, **arguments):
            engine.place = membership.members.index(1)
            play.cores.append(PlayedServer(engine, **arguments))
            return play.cores[-1]

        def recover(_error, _epoch, _deadline):
            for _ in range(1 + play.dies_in_recovery):
                membership.members, membership.epoch = (1, 2), membership.epoch + 1
                own = play.server.read_state((0,))
                play.server.fill([own], Deadline(None))
                play.server.remake(None, Deadline(None))
            play.server.resume()

        monkeypatch.setattr(native.core, "ParameterServer", make_core)
        context = played_context(
            recover, rank=1, size=3, members=(0, 1, 2), nodes=(0, 0, 0), when_closed=lambda _: None
        )
        membership = context.membership
        with creating(Group(1, 3, (0, 0, 0)), "server"):
            update = None if isinstance(sync, EAMSGD) else SGD(1.0)
            arguments = ParameterServerArguments(np.zeros(COUNT), sync=sync, update=update, **options)
        play.server = ContinuingServer(context, arguments, Deadline(None), weights=np.zeros(COUNT), call=None)
        return play.server

    play.make = make
    return play


def push_without_update(played, count):
    """Push 0, 1 and so on; each is released, and no update uses it."""
    for step in range(count):
        played.server.push(np.full(COUNT, float(step)))
        played.cores[0].release(update=False)
        played.server.wait(step + 1)


def pushed(core):
    return [call for call in core.calls if call[0] in ("push", "give up")]


def test_a_push_that_no_weights_include_is_repeated_once(played):
    server = played.make()
    assert server.push(np.full(COUNT, 1.0)) == 1
    server.wait(1)
    assert server.push(np.full(COUNT, 2.0)) == 2
    played.cores[0].is_dead = True
    server.wait(2)
    first, second = played.cores
    assert first.dead == [0]
    assert pushed(second) == [("push", 2.0)]
    assert second.resumed == {"version": 1, "given": 0, "clocks": [1, 1], "parts": [(0, COUNT, [1, 1])]}
    assert server.clock == second.clock == 2
    assert server.push(np.full(COUNT, 3.0)) == 3
    assert pushed(second) == [("push", 2.0), ("push", 3.0)]


def test_a_survivor_serves_in_place_of_the_dead(played):
    server = played.make()
    assert (server.servers, played.cores[0].options["servers"]) == ((0,), [0])
    server.push(np.ones(COUNT))
    server.wait(1)
    played.cores[0].is_dead = True
    server.push(np.ones(COUNT))
    assert (server.servers, played.cores[1].options["servers"]) == ((1,), [0])
    assert played.cores[1].weights.view(float).tolist() == [7.0] * COUNT
    assert server._arrays is None  # not kept


def test_a_server_that_no_rank_has_used_begins_again(played):
    """As on survivors that had not completed its creation."""
    server = played.make()
    played.cores[0].is_dead = True
    server.push(np.ones(COUNT))
    assert (server.servers, played.cores[1].resumed) == ((1,), None)
    assert played.cores[1].weights.tolist() == [0.0] * COUNT


def test_the_caller_may_change_a_gradient_that_is_pushed_again(played):
    server, gradient = played.make(), np.full(COUNT, 1.0)
    server.push(gradient)
    gradient[:] = 9
    played.cores[0].is_dead = True
    server.wait(1)
    assert pushed(played.cores[1]) == [("push", 1.0)]


def test_pushes_that_are_included_are_forgotten(played):
    server = played.make()
    for step in range(10):
        server.push(np.full(COUNT, float(step)))
        server.wait(step + 1)
    assert [push.clock for push in server._pushes] == [8, 9, 10]
    assert len(server._free_copies) == 1  # the memory is used again


def test_without_a_pull_pushes_are_kept_for_the_shards_of_other_nodes(played):
    server = played.make()
    server._reads_copies = True
    for step in range(6):
        server.push(np.full(COUNT, float(step)))
        server.wait(step + 1)
    assert [push.clock for push in server._pushes] == [1, 2, 3, 4, 5, 6]
    server.pull(np.zeros(COUNT))
    server.push(np.ones(COUNT))
    assert [push.clock for push in server._pushes] == [5, 6, 7]
    for step in range(7, 20):
        server.wait(step)
        server.push(np.ones(COUNT))
    assert len(server._pushes) == 8


def test_releases_are_not_newer_than_the_weights_that_survive(played):
    server = played.make()
    for step in range(2):
        server.push(np.ones(COUNT))
        server.wait(step + 1)
    played.cores[0].newest = 1  # of a copy
    played.cores[0].is_dead = True
    server.pull(np.zeros(COUNT))
    assert [push.released for push in server._pushes] == [1, 1]


def test_two_pushes_are_kept_however_many_updates_others_make(played):
    server = played.make()
    for step in range(5):
        server.push(np.ones(COUNT))
        played.cores[0].newest += 10
        server.wait(step + 1)
    assert [push.clock for push in server._pushes] == [4, 5]


def test_a_push_that_was_handed_over_before_the_death_is_not_handed_over_again(played):
    server = played.make()
    first = played.cores[0]

    def push(gradient, *, timeout=None):
        first.clock += 1
        first.used = first.clock  # the server has used it
        raise RankFailedError("rank 0 has died", [0])

    first.push = push
    assert server.push(np.ones(COUNT)) == 1
    assert pushed(played.cores[1]) == []
    assert server.clock == played.cores[1].clock == 1


def test_a_push_in_which_a_rank_dies_keeps_its_values(played):
    """The next push must not get the same memory."""
    server = played.make()
    server.push(np.full(COUNT, 1.0))
    server.wait(1)
    played.cores[0].is_dead = True
    server.push(np.full(COUNT, 2.0))
    server.wait(2)
    second = played.cores[1]
    server.push(np.full(COUNT, 3.0))
    second.used, second.is_dead = 1, True
    server.wait(3)
    assert pushed(played.cores[2])[0] == ("push", 2.0)


def test_the_newest_version_is_asked_for_again(played):
    """Versions may begin with an earlier one."""
    server = played.make()
    server.push(np.ones(COUNT))
    server.wait(1)
    played.cores[0].is_dead = True
    server.pull(np.zeros(COUNT), at_least=99)
    assert played.cores[1].calls == [("pull",)]


def test_a_shard_that_is_lost_is_the_newest_copy(played):
    server, out = played.make(), np.zeros(COUNT)
    server._reads_copies = True
    for step in range(2):
        server.push(np.full(COUNT, float(step)))
        server.wait(step + 1)
        server.pull(out)
    out[:] = -1  # the caller's
    server.push(np.full(COUNT, 2.0))
    played.cores[0].is_remote = played.cores[0].is_dead = True
    server.wait(3)
    second = played.cores[1]
    assert second.weights.view(float).tolist() == [100.0] * COUNT
    assert second.resumed["version"] == 2
    assert pushed(second) == [("push", 2.0)]


def test_a_push_that_waits_to_be_repeated_has_no_release(played):
    """Else a later copy would seem to include it."""
    server = played.make()
    push_without_update(played, 3)
    played.cores[0].used = 1
    server._membership.recover(None, 0, None)
    assert [push.released for push in server._pushes] == [0, None, None]


def test_pushes_wait_for_the_update_that_uses_them(played):
    """No update yet: all may have to be pushed again."""
    server = played.make()
    push_without_update(played, 5)
    assert [push.clock for push in server._pushes] == [1, 2, 3, 4, 5]
    played.cores[0].used = 2
    played.cores[0].is_dead = True
    server.pull(np.zeros(COUNT))
    assert pushed(played.cores[1]) == [("push", 2.0), ("push", 3.0), ("push", 4.0)]
    assert played.cores[1].calls[-1] == ("pull",)  # after all pushes


def test_a_test_pushes_again_without_waiting(played):
    server = played.make()
    push_without_update(played, 3)
    played.cores[0].used = 1
    server._membership.recover(None, 0, None)
    second = played.cores[1]
    assert pushed(second) == [("push", 1.0)]
    assert not server.test(3)
    assert pushed(second) == [("push", 1.0)]
    second.release()
    assert not server.test(3)
    assert pushed(second) == [("push", 1.0), ("push", 2.0)]
    second.release()
    assert server.test(3)


def test_a_trial_that_was_given_up_is_given_up_again(played):
    server = played.make("mindflayer:2:1")
    assert server.give_up() == 1
    played.cores[0].is_dead = True
    server.wait(1)
    assert pushed(played.cores[1]) == [("give up",)]
    assert server.clock == 1


def test_a_push_and_pull_in_which_a_rank_dies(played):
    server, out = played.make(), np.zeros(COUNT)
    played.cores[0].is_dead = True
    server.push_pull(np.full(COUNT, 5.0), out)
    assert pushed(played.cores[1]) == [("push", 5.0)]
    assert out.tolist() == [100.0] * COUNT
    first = played.cores[1]
    first.pull = lambda *_, **__: (_ for _ in ()).throw(RankFailedError("rank 2 has died", [2]))  # after the push
    server.push_pull(np.full(COUNT, 6.0), out)
    assert pushed(first) == [("push", 5.0), ("push", 6.0)]
    assert pushed(played.cores[2]) == []
    assert played.cores[2].calls == [("pull",)]
    assert server.clock == 2


def test_an_elastic_average_that_was_lost_is_computed_again(played):
    server, out = played.make(EAMSGD(1, alpha=0.25)), np.zeros(COUNT)
    server.push(np.full(COUNT, 4.0))
    server.wait(1)
    played.cores[0].is_dead = True
    server.pull(out)
    assert pushed(played.cores[1]) == []
    assert out.tolist() == [4.0 + 0.25 * (100.0 - 4.0)] * COUNT
    server.pull(out)
    assert out.tolist() == [100.0] * COUNT  # the center


def test_a_suspended_worker_is_suspended_again(played):
    server = played.make()
    server.push(np.ones(COUNT))
    server.wait(1)
    server.suspend()
    played.cores[0].is_dead = True
    server.pull(np.zeros(COUNT))
    assert played.cores[1].calls == [("suspend",), ("pull",)]
    server.push(np.ones(COUNT))
    played.cores[1].is_dead = True
    server.pull(np.zeros(COUNT))
    assert ("suspend",) not in played.cores[2].calls


def test_a_suspended_worker_with_a_push_to_repeat_is_suspended_after_it(played):
    server = played.make()
    server.push(np.ones(COUNT))
    server.suspend()
    played.cores[0].is_dead = True
    server.pull(np.zeros(COUNT))
    assert played.cores[1].calls == [("push", 1.0), ("suspend",), ("pull",)]


def test_an_interrupt_while_a_push_is_repeated_loses_nothing(played):
    server = played.make()
    push_without_update(played, 2)
    played.cores[0].used = 0
    server._membership.recover(None, 0, None)
    second = played.cores[1]
    push, second.push = second.push, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        server.wait(2)
    second.push = push
    server.wait(2)
    assert pushed(second) == [("push", 0.0), ("push", 1.0)]


def test_a_refused_push_leaves_no_average_to_compute(played):
    server, out = played.make(EAMSGD(1, alpha=0.25)), np.zeros(COUNT)
    server.push(np.ones(COUNT))
    server.pull(out)
    played.cores[0].is_dead = True
    server.pull(out)
    second = played.cores[1]
    push, second.push = second.push, lambda *_, **__: (_ for _ in ()).throw(ValueError("NaN"))
    with pytest.raises(ValueError, match="NaN"):
        server.push(np.full(COUNT, np.nan))
    second.push = push
    server.pull(out)
    assert out.tolist() == [100.0] * COUNT


def test_work_is_settled_again_after_a_death_during_the_recovery(played):
    server = played.make()
    server.push(np.ones(COUNT))
    first = played.cores[0]
    server._membership.members = (1, 2)
    server.read_state((0,))
    assert first.dead == [0]
    server.read_state((2,))
    assert sorted(first.dead) == [0, 2]


def test_a_death_during_the_recovery(played):
    """The shards are those of the collective in which ranks have pushed."""
    server = played.make()
    server.push(np.ones(COUNT))
    played.dies_in_recovery = True
    played.cores[0].is_dead = True
    server.pull(np.zeros(COUNT))
    assert [pushed(core) for core in played.cores] == [[("push", 1.0)], [], [("push", 1.0)]]
    assert played.cores[2].weights.view(float).tolist() == [7.0] * COUNT
    assert len(server._sources) == 0


def test_counters_are_those_of_all_collectives(played):
    server = played.make()
    played.cores[0].is_dead = True
    server.push(np.ones(COUNT))
    assert server.statistics() == {"waited": 1.0, "memory_bytes": 8}
    assert [rank for rank, *_ in server.server_statistics()["workers"]] == [1, 2]
    server.leave()
    assert played.cores[1].has_left
    assert server.closed
    with pytest.raises(ClosedError):
        server.push(np.ones(COUNT))


def test_failed_weights_stay_unusable(played):
    server = played.make()
    core = played.cores[0]
    server.push(np.ones(COUNT))
    shards = core.included()
    shards[0]["is_broken"] = True
    core.included = lambda: shards
    core.is_dead = True
    with pytest.raises(RuntimeError, match="the update function has raised an exception: the weights are unusable"):
        server.push(np.ones(COUNT))
