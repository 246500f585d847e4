"""Ranks as threads of one process, for tests and experiments without an MPI launcher."""

from __future__ import annotations

import math
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from .communicator import Communicator
from .support.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .support.typing import Progress

__all__ = ["loopback", "run_ranks"]

T = TypeVar("T")


def loopback(
    size: int,
    *,
    progress: Progress = "thread",
    delay: float = 0.0,
    seed: int = 0,
    ranks_per_node: int | Literal["all"] = "all",
    timeout: float | None = 60.0,
    check: bool = False,
) -> list[Communicator]:
    """Return `size` communicators in this process, connected by mailboxes; use each in its own thread.

    Parameters
    ----------
    size
        The number of ranks, at least 1.
    progress
        As for `Communicator`.
    delay, seed
        Every message takes up to `delay` seconds, drawn at random with `seed`.
    ranks_per_node, timeout
        As for `Communicator`.
    check
        Compare calls and rounds across ranks, as `PYC_CHECK=1` does.

    Raises
    ------
    ValueError
        `size` is less than 1.
    """
    from .support.native import core

    if size < 1:
        raise ValueError(f"size: expected at least 1, got {size}")
    engines = core.Engine.loopback(size, progress=progress, delay=delay, seed=seed)
    check_engines = core.Engine.loopback(size, progress=progress) if check else [None] * size
    return [
        Communicator._from_engine(engine, ranks_per_node=ranks_per_node, timeout=timeout, check_engine=of_checks)
        for engine, of_checks in zip(engines, check_engines, strict=True)
    ]


@overload
def run_ranks(
    ranks: int | Sequence[Communicator],
    function: Callable[[Communicator], T],
    *,
    timeout: float = ...,
    communicator_timeout: float | None = ...,
    return_exceptions: Literal[False] = ...,
    **loopback_options: Any,
) -> list[T]: ...
@overload
def run_ranks(
    ranks: int | Sequence[Communicator],
    function: Callable[[Communicator], T],
    *,
    timeout: float = ...,
    communicator_timeout: float | None = ...,
    return_exceptions: Literal[True],
    **loopback_options: Any,
) -> list[T | BaseException]: ...
def run_ranks(
    ranks: int | Sequence[Communicator],
    function: Callable[[Communicator], Any],
    *,
    timeout: float = 60.0,
    communicator_timeout: float | None = 60.0,
    return_exceptions: bool = False,
    **loopback_options: Any,
) -> list[Any]:
    """Run `function(communicator)` for all ranks at once, each in its own thread; return the results by rank.

    Parameters
    ----------
    ranks
        The number of ranks, or communicators from `loopback`. Each is closed when its function returns.
    function
        The program of one rank.
    timeout
        Seconds for the whole run.
    communicator_timeout
        The `timeout` of `loopback` if `ranks` is a number: the limit of each call that waits.
    return_exceptions
        If True, a rank's exception is returned in place of its result; if False, the lowest rank's is raised.
    loopback_options
        Other options of `loopback`, if `ranks` is a number.

    Returns
    -------
    list
        The return value of each rank's function.

    Raises
    ------
    TimeoutError
        Some ranks are not done in time; the message shows their stacks.

    >>> import numpy as np
    >>> def program(comm):
    ...     result, info = comm.partial_allreduce(np.zeros(1), policy=Full()).allreduce(np.ones(1))
    ...     return float(result[0])
    >>> from pycollectives import Full
    >>> run_ranks(3, program)
    [3.0, 3.0, 3.0]
    """
    if isinstance(ranks, int):
        communicators = loopback(ranks, timeout=communicator_timeout, **loopback_options)
    else:
        communicators = list(ranks)
    outcomes: list[Any] = [None] * len(communicators)
    failures: dict[int, BaseException] = {}

    def run(rank: int, communicator: Communicator) -> None:
        try:
            with communicator:
                outcomes[rank] = function(communicator)
        except BaseException as error:
            outcomes[rank] = failures[rank] = error

    threads = [
        threading.Thread(target=run, args=(rank, communicator), name=f"rank {rank}", daemon=True)
        for rank, communicator in enumerate(communicators)
    ]
    for thread in threads:
        thread.start()
    deadline = Deadline(timeout)
    try:
        for thread in threads:
            thread.join(None if timeout == math.inf else deadline.remaining())
    except BaseException:  # after Ctrl-C, no rank may wait for another
        for communicator in communicators:
            communicator.abort()
        for thread in threads:
            thread.join(1.0)
        raise
    running = [thread for thread in threads if thread.is_alive()]
    if running:
        raise TimeoutError(f"ranks not done after {timeout} s:\n" + "\n".join(map(_where, running))) from next(
            iter(failures.values()), None
        )
    if failures and not return_exceptions:
        raise failures[min(failures)]
    return outcomes


def _where(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{thread.name} is at\n" + "".join(traceback.format_stack(frame))
