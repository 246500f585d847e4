"""Requests, which represent pending calls, and functions that wait for them."""

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

_YIELDS = 200
"""Passes of `wait_any` that only yield the processor, before it sleeps between passes."""

_NAP = 50e-6
"""Seconds that `wait_any` sleeps between two passes."""


class Request(ABC):
    """A pending contribution, push or step. Dropping a request loses no data."""

    @abstractmethod
    def wait(self, *, timeout: float | None = None) -> Any:
        """Wait until the request is done.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        info
            A description of the result, such as a `RoundInfo`.

        Raises
        ------
        StallError
            The request is not done in time; the message names the missing ranks. The request stays
            pending: wait again.
        """

    @abstractmethod
    def test(self) -> bool:
        """Return True if the request is done. Advance messages without waiting."""

    @property
    def done(self) -> bool:
        """Whether the request is done; the same as `test()`."""
        return self.test()

    @property
    @abstractmethod
    def default_timeout(self) -> float | None:
        """Time limit of `wait` without `timeout`, in seconds; None for no limit."""


def wait_all(requests: Iterable[Request], *, timeout: float | None = None) -> list[Any]:
    """Wait until all requests are done.

    Afterwards, a collective's `result` belongs to its last request in the list. For several contributions to one
    partial allreduce, wait for each request separately and read `result` after each wait.

    Parameters
    ----------
    requests
        Requests of one or more collectives, of any kinds. Inactive requests of `Allreduce_init` are ignored, as in
        MPI_Waitall.
    timeout
        Seconds for all requests together; None for the default of the first active request's communicator.

    Returns
    -------
    list
        The return value of each request's `wait`, in the order given; for an inactive request, its `info`.

    Raises
    ------
    StallError
        A request is not done in time. The message names the first such request's collective and the missing ranks.
    """
    requests = _checked("wait_all", requests)
    deadline = _deadline(requests, timeout)
    return [
        request.wait(timeout=deadline.remaining()) if _is_active(request) else getattr(request, "info", None)
        for request in requests
    ]


def wait_any(requests: Iterable[Request], *, timeout: float | None = None) -> int:
    """Wait until one of the requests is done and return its index.

    A request that is done stays done: remove it from the sequence before the next call. Inactive requests of
    `Allreduce_init` are ignored, as in MPI_Waitany.

    Parameters
    ----------
    requests
        Requests of one or more collectives, of any kinds.
    timeout
        Seconds; None for the default of the first active request's communicator.

    Returns
    -------
    int
        The index of a request that is done; the lowest if several are.

    Raises
    ------
    ValueError
        There are no requests, or all are inactive.
    StallError
        No request is done in time. The message describes the first active request.
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
            active[0][1].wait(timeout=0.0)  # raises the collective's own error, unless it is done by now
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
    return [(index, request) for index, request in enumerate(requests) if _is_active(request)]


def _is_active(request: Request) -> bool:
    return bool(getattr(request, "active", True))


def _deadline(requests: Sequence[Request], timeout: float | None) -> Deadline:
    limit = checked_timeout(timeout)
    active = _active(requests)
    if limit is None and active:
        limit = active[0][1].default_timeout
    return Deadline(math.inf if limit is None else limit)
