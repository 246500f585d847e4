"""Requests: what a call returns that does not wait for other ranks."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .support.deadline import Deadline
from .support.validation import checked_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Request", "wait_all", "wait_any"]

_YIELDS = 200
"""Passes of `wait_any` that only yield the processor, before it sleeps between passes."""

_NAP = 50e-6
"""Seconds that `wait_any` sleeps between two passes."""


class Request(ABC):
    """A call under way: of a contribution, a push, or a step. Dropping a request loses nothing."""

    @abstractmethod
    def wait(self, *, timeout: float | None = None) -> Any:
        """Wait until it is done.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        info
            What the call is told, such as a `RoundInfo`.

        Raises
        ------
        StallError
            It is not done in time: names the ranks that it waits for. It stays under way: wait again.
        """

    @abstractmethod
    def test(self) -> bool:
        """Whether it is done. Moves messages, waits for nothing."""

    @property
    def done(self) -> bool:
        """As `test`."""
        return self.test()

    @property
    @abstractmethod
    def default_timeout(self) -> float | None:
        """Seconds that `wait` takes at most if it is given no limit; None: there is none."""


def wait_all(requests: Iterable[Request], *, timeout: float | None = None) -> list[Any]:
    """Wait until all requests are done.

    A collective's `result` is then that of its last request in the list: of several contributions to one partial
    allreduce, wait for one after the other, and read `result` after each.

    Parameters
    ----------
    requests
        Of one or more collectives, of any kinds. Inactive requests of `Allreduce_init` are ignored, as in MPI_Waitall.
    timeout
        Seconds for all of them together; None for the default of the communicator that the first active one is of.

    Returns
    -------
    list
        What `wait` of each returns, in the order given; of an inactive request of `Allreduce_init` its `info`.

    Raises
    ------
    StallError
        At the first that is not done in time; names its collective and the ranks that are missing.
    """
    requests = _checked("wait_all", requests)
    deadline = _deadline(requests, timeout)
    return [
        request.wait(timeout=deadline.remaining()) if _is_active(request) else getattr(request, "info", None)
        for request in requests
    ]


def wait_any(requests: Iterable[Request], *, timeout: float | None = None) -> int:
    """Wait until one of the requests is done and return its index: the lowest, if several are.

    A request that is done stays done, so take it out of the sequence before the next call. Inactive requests of
    `Allreduce_init` are ignored, as in MPI_Waitany.

    Parameters
    ----------
    requests
        Of one or more collectives, of any kinds.
    timeout
        Seconds; None for the default of the communicator that the first active one is of.

    Raises
    ------
    ValueError
        If there are none, or all are inactive.
    StallError
        None is done in time; the text is that of the first active one.
    """
    requests = _checked("wait_any", requests)
    if not requests:
        raise ValueError("wait_any: expected at least one request, got none")
    active = _active(requests)
    if not active:
        raise ValueError("wait_any: expected a request that was started, got only inactive ones")
    deadline = _deadline(requests, timeout)
    passes = 0
    while True:
        for index, request in active:
            if request.test():
                return index
        if deadline.passed:
            active[0][1].wait(timeout=0.0)  # raises, with the collective's own account; or it is done by now
            return active[0][0]
        passes += 1
        time.sleep(0 if passes <= _YIELDS else _NAP)


def _checked(call: str, requests: Iterable[Request]) -> list[Request]:
    if not isinstance(requests, Iterable):
        raise TypeError(f"{call}: expected a list of requests, got {type(requests).__name__}")
    checked = list(requests)
    for request in checked:
        if not isinstance(request, Request):
            raise TypeError(f"{call}: expected requests, got {type(request).__name__}")
    return checked


def _active(requests: Sequence[Request]) -> list[tuple[int, Request]]:
    """Return those that are under way or done, with their places: not those that were never started, or are idle."""
    return [(index, request) for index, request in enumerate(requests) if _is_active(request)]


def _is_active(request: Request) -> bool:
    return bool(getattr(request, "active", True))


def _deadline(requests: Sequence[Request], timeout: float | None) -> Deadline:
    limit = checked_timeout(timeout)
    active = _active(requests)
    if limit is None and active:
        limit = active[0][1].default_timeout
    return Deadline(math.inf if limit is None else limit)
