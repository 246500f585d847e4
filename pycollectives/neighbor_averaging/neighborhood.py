"""The common part of the synchronous averages with neighbors: a step and its request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from ..collective import Collective, Statistics
from ..request import Request
from ..support import buffers
from .arguments import NeighborhoodArguments
from .continuing_steps import ContinuingNeighborhood

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec
    from ..topology.arguments import AnyTopology

ArgumentsT = TypeVar("ArgumentsT", bound=NeighborhoodArguments)


@dataclass(frozen=True)
class StepInfo:
    """Describes a step of `NeighborAveraging` or `PushSum`.

    Attributes
    ----------
    step
        The number of the step, from 0.
    weight
        The weight of the result for push-sum, otherwise 1.
    """

    step: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class NeighborhoodStatistics(Statistics):
    """Counters of one rank; `statistics` of `NeighborAveraging` and `PushSum` returns them.

    Attributes
    ----------
    steps
        Steps that this rank has started. A rank that replaces a dead one begins with a survivor's count.
    """

    steps: int


class StepRequest(Request):
    """A pending step, done when its result is complete; returned by `start`.

    Attributes
    ----------
    step
        The number of the step, from 0.
    """

    def __init__(self, collective: Neighborhood[Any], step: int) -> None:
        self._collective = collective
        self._info: StepInfo | None = None
        self._in_place: Array | None = None  # the array given to `average`
        self._said_done = False
        self.step = step

    def wait(self, *, out: BufferSpec | None = None, timeout: float | None = None) -> StepInfo:
        """Wait until the step is done. The collective's `result` is then the step's average.

        Parameters
        ----------
        out
            Memory for the average instead of `result`: C-contiguous, writable host memory of the count and dtype of
            `like`.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        StepInfo
            The number of the step and, for push-sum, the weight.

        Raises
        ------
        StallError
            The step is not done in time; the message names the step and the missing neighbors. `out` is unchanged. Wait
            again.
        RankFailedError
            Ranks have died; the message names them.
        RuntimeError
            Another thread is in a call of the collective, or `out` is given and the step is already done.
        ValueError, TypeError, BufferError
            `out` is invalid.
        ClosedError
            This rank has left.
        """
        if self._info is None:
            self._collective._end_step(out, timeout)
            self._info = StepInfo(self.step, self._collective._weight)
        elif out is not None:
            raise RuntimeError(f"{self._collective.name}: step {self.step} is done already: read `result` instead")
        return self._info

    def test(self) -> bool:
        """Return True if the step is done, so that `wait` returns at once. Advance messages without waiting."""
        self._said_done = self._info is not None or self._collective._test()
        return self._said_done

    @property
    def default_timeout(self) -> float | None:
        """The communicator's default time limit, in seconds; None for no limit."""
        return self._collective.comm.timeout

    def __repr__(self) -> str:
        return f"<StepRequest {self.step} of {self._collective.name!r}>"


class Neighborhood(Collective[ArgumentsT]):
    """Base class of the synchronous averages with neighbors.

    Only one thread at a time may use a collective. Ranks may make different numbers of steps: after a rank leaves, its
    neighbors continue without it.
    """

    push_sum: ClassVar[bool]
    _collective: _core.Neighborhood | ContinuingNeighborhood

    def __init__(self, context: Context, arguments: ArgumentsT, deadline: Deadline) -> None:
        from ..support.native import core

        super().__init__(context, arguments, deadline)
        self._result: Array | None = None
        self._shown: Array | None = None
        self._request: StepRequest | None = None
        if context.membership is not None:
            self._collective = ContinuingNeighborhood(context, arguments, deadline, push_sum=self.push_sum)
            return
        self._collective = core.Neighborhood(
            context.engine,
            push_sum=self.push_sum,
            nodes=context.nodes,
            timeout=deadline.remaining(),
            **arguments.for_engine(context.rank),
        )

    def start(self, w: BufferSpec) -> StepRequest:
        """Begin the next step with this rank's model, without waiting for another rank.

        Parameters
        ----------
        w
            C-contiguous host memory of the count and dtype of `like`. It is copied, so you may change it after the
            call. For several arrays see `flatten`.

        Returns
        -------
        Request
            Its `wait` returns a `StepInfo`; afterwards `result` is the average.

        Raises
        ------
        ValueError, TypeError, BufferError
            `w` has a wrong count or dtype, is not a buffer, or is not contiguous. Nothing is sent.
        RuntimeError
            The last step is not done: call `wait` on `request`, or `test` until it returns True. Or another thread is
            in a call of this object.
        ClosedError
            This rank has left.
        """
        return self._start(w, None)

    def _start(self, w: BufferSpec, timeout: float | None) -> StepRequest:
        array = buffers.as_bytes_exporter(buffers.matching_array(w, self._template.buffer, name=self.name))
        before = self._request
        limit: dict[str, Any] = {}
        if isinstance(self._collective, ContinuingNeighborhood):  # its calls wait if a rank has died
            limit = {"timeout": timeout}
        if before is not None and before._said_done:
            before.wait(**(limit or {"timeout": 0.0}))
        self._collective.start(array, **limit)
        self._request = StepRequest(self, self._collective.steps - 1)
        return self._request

    @property
    def request(self) -> StepRequest | None:
        """The request of the newest step; None before the first."""
        return self._request

    def average(self, w: BufferSpec, *, timeout: float | None = None) -> StepInfo:
        """Perform a step in place: start it, wait for it, and write the average to `w`.

        Parameters
        ----------
        w
            C-contiguous, writable host memory of the count and dtype of `like`.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        StepInfo
            The number of the step and, for push-sum, the weight.

        Raises
        ------
        StallError
            The step is not done in time; the message names the step and the missing neighbors. `w` is unchanged. Call
            this again with the same `w`: the step continues with the values of the first call.
        RuntimeError
            An unfinished step, after an error or Ctrl-C, began with other memory: pass that memory, or wait on
            `request`.
        ValueError, TypeError, BufferError, RankFailedError, ClosedError
            As for `start` and its request's `wait`.
        """
        self._context.limit(timeout)
        array = self._writable(w)
        step = self._request
        if step is None or step._info is not None or step._in_place is None:
            step = self._start(array, timeout)
            step._in_place = array
        elif step._in_place.__array_interface__["data"] != array.__array_interface__["data"]:
            raise RuntimeError(
                f"{self.name!r}: average: step {step.step} has begun with other memory, and is not done: pass "
                "that memory, or wait on `request`"
            )
        return step.wait(out=array, timeout=timeout)

    @property
    def result(self) -> Array:
        """The average of the newest step for which `wait` returned: read-only, of the shape of `like`.

        It does not change until `wait` of a later step returns, and does not show averages that were written to `out`
        or in place. Before the first step, it raises `RuntimeError`.
        """
        if self._shown is None:
            raise RuntimeError(f"{self.name!r}: no step has a result yet; call average first")
        return self._shown

    def final(self, out: BufferSpec | None = None, *, timeout: float | None = None) -> Array:
        """Return this rank's model after its last step; the neighbors make no extra call.

        You may also call it after `leave`, while the communicator is open. With `overlap=1`, the model includes the
        messages for this rank's next step. Start further steps from `result` instead, because these messages would
        count twice.

        Parameters
        ----------
        out
            Memory for the model: C-contiguous, writable host memory of the count and dtype of `like`; None for a new
            array.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        numpy.ndarray
            The model: `out`, or a new array of the shape of `like`.

        Raises
        ------
        RuntimeError
            No step was started.
        StallError, RankFailedError, ValueError, TypeError, BufferError
            As for `wait` of a request.
        """
        limit = self._context.limit(timeout)
        array = self._new_array() if out is None else self._writable(out)
        self._collective.final(buffers.as_bytes_exporter(array), timeout=limit)
        return array

    def statistics(self) -> NeighborhoodStatistics:
        return NeighborhoodStatistics(**self._collective.statistics())

    @property
    def topology(self) -> AnyTopology:
        """The graph along which ranks average."""
        return self._arguments.topology

    @property
    def weights(self) -> str:
        """The kind of weights, such as "metropolis"."""
        assert self._arguments.weights is not None
        return self._arguments.weights

    @property
    def steps(self) -> int:
        """The number of steps started on this rank. A rank that replaces a dead one begins with a survivor's count."""
        return self._collective.steps

    def _choices(self) -> list[str]:
        return ["on", repr(self.topology)]

    def _end_step(self, out: BufferSpec | None, timeout: float | None) -> None:
        limit = self._context.limit(timeout)
        if out is not None:
            self._collective.wait(buffers.as_bytes_exporter(self._writable(out)), timeout=limit)
            return
        array = self._new_array() if self._result is None else self._result
        self._collective.wait(buffers.as_bytes_exporter(array), timeout=limit)
        if self._result is None:
            self._result, self._shown = array, array.view()
            self._shown.flags.writeable = False

    def _test(self) -> bool:
        return self._collective.test()

    @property
    def _weight(self) -> float:
        return self._collective.weight if self.push_sum else 1.0

    def _new_array(self) -> Array:
        return np.empty(self.shape, self.dtype)

    def _writable(self, out: BufferSpec) -> Array:
        return buffers.matching_array(out, self._template.buffer, name=self.name, writable=True)
