"""The engine's side of a collective that continues after deaths: the part that all services share.

A death ends the engine's collective. The survivors make a new one (membership/members.py), and calls continue in it.
"""

from __future__ import annotations

import contextlib
import math
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..support.deadline import Deadline
from ..support.errors import ClosedError, RankFailedError, StallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ..arguments import Arguments
    from ..collective import EngineSide
    from ..context import Context
    from ..support.typing import Array

ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")
CoreT = TypeVar("CoreT", bound="EngineSide")
T = TypeVar("T")


class Continuing(ABC, Generic[ArgumentsT, CoreT]):
    """One rank's side of a collective that continues; see `members.Recoverable`.

    Calls run as `_run(action, deadline)`. An action gets the engine's collective from `_engine_side`, and runs again
    after a recovery.
    """

    begins_at = 0

    def __init__(self, context: Context, arguments: ArgumentsT, deadline: Deadline) -> None:
        """Make the engine's collective; collective. A rank that joins later calls `remake` instead."""
        assert context.membership is not None
        self._context = context
        self._membership = context.membership
        self._arguments = arguments
        self._rank = context.communicator.rank
        self._in_use = threading.RLock()  # a signal handler may abort during a recovery
        self._left = False
        self._has_ended = False  # whether all survivors had left at a recovery
        self._core: CoreT | None = None  # None: stopped
        if not self._membership.is_joining:
            self._core = self._made(deadline)

    def _made(self, deadline: Deadline) -> CoreT:
        """Make the engine's collective for the members of this epoch; collective."""
        self._members = self._membership.members
        self._epoch = self._membership.epoch
        return self._made_for_members(deadline)

    @abstractmethod
    def _made_for_members(self, deadline: Deadline) -> CoreT: ...

    @property
    def _engine_side(self) -> CoreT:
        """The engine's collective; raises RankFailedError if a recovery must come first."""
        if self._has_ended:
            raise ClosedError(f"{self._arguments.name!r} is closed")
        self._membership.check_installed()
        if self._core is None:
            raise RankFailedError(f"{self._arguments.name}: a rank has died, and the survivors have not continued yet")
        return self._core

    @property
    def _notified_side(self) -> CoreT:
        """`_engine_side`, checked for deaths that the engine knows; for calls that do not always use the engine."""
        side, engine = self._engine_side, self._context.engine
        if engine.progress == "caller":
            engine.advance()
        engine.check_usable()
        return side

    @property
    def _first_number(self) -> int:
        """The number of the first round, step or group of the engine's collective."""
        return 0

    def _numbering(self) -> str:
        """Return an explanation of round, step and group numbers, for messages."""
        return f"; rounds, steps and groups count from {self._first_number}"

    def _check_not_left(self) -> None:
        if self._left:
            raise ClosedError(f"{self.name!r} is closed")

    def deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._context.limit(timeout))

    # ------------------------------------------------------------------------------------------------ calls

    def _run(
        self, action: Callable[[], T], deadline: Deadline, *, lock: AbstractContextManager[object] | None = None
    ) -> T:
        """Return the result of `action`; if a rank has died, recover and call `action` again.

        `lock` is held during the action; by default `_exclusively()`.
        """
        while True:
            epoch = self._membership.epoch
            try:
                with self._exclusively() if lock is None else lock:
                    return action()
            except RankFailedError as error:
                failure = error
            except StallError as error:
                if self._epoch > 0:
                    error.advise(
                        f"The rank numbers above are positions in comm.members = {self._members}{self._numbering()}"
                    )
                raise
            self._membership.recover(failure, epoch, deadline)

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Refuse a second thread, as the engine does. During a recovery by another thread, wait instead."""
        if not self._in_use.acquire(blocking=self._membership.is_recovering):
            raise self._is_busy()
        try:
            yield
        finally:
            self._in_use.release()

    def _is_busy(self) -> RuntimeError:
        return RuntimeError(
            f"{self.name}: called while another thread is in a call of this collective; one thread at a time, or one "
            "collective per thread"
        )

    def _enter_soon(self) -> bool:
        """Lock the collective. Return False, without a lock, during a recovery by another thread."""
        if self._in_use.acquire(blocking=False):
            return True
        if self._membership.is_recovering:
            return False
        raise self._is_busy()

    def leave(self) -> None:
        """Leave, as the engine's collective does. During a recovery by another thread, that thread leaves later."""
        if self._left or not self._enter_soon():
            self._left = True
            return
        try:
            with contextlib.suppress(RankFailedError):
                _ = self._engine_side
                self._leave()
            self._left = True
        finally:
            self._in_use.release()

    # ------------------------------------------------------------------------------------------------ recovering

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        with self._in_use:
            yield
            if self._left and self._core is not None and self._membership.is_installed:
                with contextlib.suppress(RankFailedError):
                    self._leave()  # another thread may have left during the recovery

    def _leave(self) -> None:
        """Leave the engine's collective, unless it has stopped. Leaving again does nothing."""
        if self._core is not None:
            self._core.leave()

    @property
    def ended(self) -> bool:
        """See `Recoverable.ended`. This covers only this rank: `confirm` compares all ranks."""
        return self._left

    def end(self) -> None:
        self._has_ended = True

    def position(self) -> Any:
        return None

    def take_position(self, position: Any) -> None:
        """See `Recoverable.take_position`."""

    def remake(self, arguments: ArgumentsT, deadline: Deadline) -> None:
        self._arguments = arguments
        self._core = self._made(deadline)

    def resume(self) -> None:
        if self._left:
            self._leave()

    def shared_bytes(self, values: Array, what: str, deadline: Deadline) -> Array:
        """Combine the members' arrays of bytes; collective. At each index, at most one member's byte is not 0."""
        made = self._context.full_rounds(values, "BOR", what, deadline)
        result, _ = made.allreduce(values, timeout=seconds_of(deadline))
        made.leave()
        return result

    # ------------------------------------------------------------------------------------------------ the state

    def check_usable(self) -> None:
        """Raise the error that the next call would raise, unless a rank's death is its cause."""
        if self._membership.failed is not None:
            raise self._membership.failed
        if self._core is not None:
            with contextlib.suppress(RankFailedError):
                self._core.check_usable()

    @property
    def closed(self) -> bool:
        return self._left

    @property
    def name(self) -> str:
        return self._arguments.name

    @property
    def default_timeout(self) -> float | None:
        """The default time limit in seconds, for calls without their own `timeout`; None for no limit."""
        return self._context.timeout


def seconds_of(deadline: Deadline) -> float:
    """Return the remaining seconds of a deadline, or `math.inf`. For the engine, None would mean the default."""
    left = deadline.remaining()
    return math.inf if left is None else left
