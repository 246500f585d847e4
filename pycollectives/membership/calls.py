"""The calls with which an application queries a communicator's members and reacts to their changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..support.errors import RankFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..communicator import Communicator
    from ..support.deadline import Deadline
    from ..support.typing import OnFailure
    from .change import MembershipChange

__all__ = ["close_engine", "end_newcomer", "epoch", "members", "on_change", "on_failure", "state"]


def close_engine(comm: Communicator, deadline: Deadline) -> None:
    """Close the engine of a communicator; collective. After a death, recover unless all ranks have closed."""

    def close() -> None:
        engine = comm._engine
        try:
            engine.close(timeout=deadline.remaining())
        except RankFailedError:
            if comm._membership is None or not engine.all_closed:
                raise

    if comm._membership is None:
        close()
    else:
        comm._membership.retry(close, deadline)


def end_newcomer(comm: Communicator) -> None:
    """End the process of a newcomer that leaves before it has joined. The survivors see a death, not a leave."""
    if comm._membership is not None:
        comm._membership.end_newcomer()


def on_failure(comm: Communicator) -> OnFailure:
    """The effect of a rank's death: "raise" or "continue"."""
    return "raise" if comm._membership is None else "continue"


def members(comm: Communicator) -> tuple[int, ...]:
    """The live ranks, ascending. They change only with `on_failure="continue"`; ranks keep their numbers."""
    return tuple(range(comm.size)) if comm._membership is None else comm._membership.members


def epoch(comm: Communicator) -> int:
    """The number of times that the members have changed."""
    return 0 if comm._membership is None else comm._membership.epoch


def on_change(comm: Communicator, callback: Callable[[MembershipChange], None]) -> None:
    """Register a callback for changes of the members, with `on_failure="continue"`.

    Each member runs the callback in the application's thread, within the call that continues after a death. It must not
    raise.

    Parameters
    ----------
    callback
        A function that takes a `pycollectives.membership.MembershipChange`.

    Raises
    ------
    TypeError
        `callback` is not a function.
    RuntimeError
        The communicator was made with `on_failure="raise"`.
    """
    if not callable(callback):
        raise TypeError(f"on_change: expected a function that takes a MembershipChange, got {callback!r}")
    if comm._membership is None:
        raise RuntimeError("on_change: the members never change with on_failure='raise'; use on_failure='continue'")
    comm._membership.on_change(callback)


def state(comm: Communicator, provide: Callable[[], Any], restore: Callable[[Any], object]) -> None:
    """Pass the state of the program to ranks that replace dead ones, with `spares` or `respawn` of `Communicator`.

    Make this call on every rank, after the collectives are created and before the loop that the state describes. On a
    rank that replaces a dead one, it calls `restore` with the result of `provide` on the lowest survivor. On other
    ranks, it registers `provide`, which runs in the application's thread, within the call that continues after a death.
    If you make several such calls, make them in the same order on all ranks.

    Parameters
    ----------
    provide
        A function that returns arrays and objects that can be pickled, such as a dictionary of the model and the number
        of the step. If dead ranks are replaced, `state` itself also calls `provide` once, to find errors early.
        `provide` must not raise, or use this communicator.
    restore
        A function that takes the value that `provide` returned.

    Raises
    ------
    TypeError
        An argument is not a function.
    """
    for name, function in (("provide", provide), ("restore", restore)):
        if not callable(function):
            raise TypeError(f"state: {name}: expected a function, got {function!r}")
    if comm._membership is not None:
        comm._membership.state(provide, restore)
