"""What this service adds to `Communicator`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..collective import Factory
from .collective import PartialAllreduce
from .policies import Policy, Quorum

if TYPE_CHECKING:
    from ..support.typing import BufferSpec, DType, Late, Missed, Op

__all__ = ["PartialAllreduceMethods"]


class PartialAllreduceMethods(Factory):
    """Partial allreduces (eager-SGD)."""

    def partial_allreduce(
        self,
        like: BufferSpec | None = None,
        *,
        count: int | None = None,
        dtype: DType | None = None,
        op: Op = "SUM",
        policy: Policy | str = Quorum(),  # noqa: B008 - immutable
        late: Late = "accumulate",
        missed: Missed | None = None,
        max_staleness: int | None = None,
        algorithm: str = "auto",
        history: int = 8,
        name: str | None = None,
    ) -> PartialAllreduce:
        """Make a partial allreduce; collective (eager-SGD, section 4).

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, whose shape and dtype contributions and results have. If it is an
            array on a CUDA device, they are on that device too: "Arrays on a device" in the documentation's Semantics.
        count, dtype
            Instead of `like`: elements, and NumPy's or MPI's type of them. Results are flat.
        op
            An operation of MPI, such as `MPI.SUM`, on element types on which MPI defines it; or `pycollectives.AVG`,
            which divides by the number of contributors; or the name of one.
        policy
            Who may start a round: an object such as `Quorum(2)`, or its text, such as "quorum:2". Default: half of the
            ranks, once they have arrived.
        late
            What becomes of data that came too late for a round. "accumulate": it goes into the next round, combined
            with `op` with what this rank contributes until then. "replace": it goes into the next round, unless newer
            data of this rank replaces it first. "drop": data that misses the round that its call completes with is
            discarded at once, unless a round waits for it (`max_staleness`); other data that no round has taken yet is
            replaced by newer.
        missed
            What a late call is given: "sum", the sum of all results that this rank had not been given (`op` SUM or
            AVG), so that ranks that add up their results end with the same; or "latest", the newest result alone.
            Default: "sum" where `op` has it, else "latest".
        max_staleness
            After so many rounds in a row for which a rank had nothing to give, the next waits for it. None: never.
        algorithm
            "auto": what costs least for these ranks, nodes and bytes if every rank has a core, or else what was
            measured to be best (`python -m pycollectives tune`).
            "board": in shared memory within nodes, and messages between nodes by the best schedule, or by a chosen one:
            "board+NAME". NAME: messages among all ranks by that schedule; `python -m pycollectives info` lists them. Of
            arrays on a CUDA device, messages go through memory of the host ("staged").
        history
            Rounds, at least 1, that a call can have missed before `RoundInfo.overrun` is True. Under `missed="sum"`
            so many results are kept one by one, and older ones are folded into a running total: nothing is lost,
            and memory stays bounded.
        name
            In messages and traces; by default a number in the order of creation.

        Raises
        ------
        ValueError, TypeError, BufferError
            An argument is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's were refused. Only the shape may differ.
        StallError
            Some ranks do not create it within the communicator's timeout.
        RuntimeError
            Another one on which this thread has contributed is not flushed: ranks could wait for each other.
        ClosedError
            The communicator is closed.
        """
        return self.create(
            PartialAllreduce,
            like=lambda: like,
            count=count,
            dtype=dtype,
            op=op,
            policy=policy,
            late=late,
            missed=missed,
            max_staleness=max_staleness,
            algorithm=algorithm,
            history=history,
            name=name,
        )
