"""What this service adds to `Communicator`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..collective import Factory
from .collective import ParameterServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..support.typing import BufferSpec
    from .sync import Synchronization
    from .update import UpdateRule

__all__ = ["ParameterServerMethods"]


class ParameterServerMethods(Factory):
    """Weights in one place: the parameter server."""

    def parameter_server(
        self,
        like: BufferSpec,
        *,
        sync: Synchronization | str | None = None,
        update: UpdateRule | Callable[..., Any] | None = None,
        servers: int | Iterable[int] | Literal["node"] = 1,
        workers: Iterable[int] | None = None,
        nan: Literal["reject", "skip", "accept"] = "reject",
        name: str | None = None,
    ) -> ParameterServer:
        """Make a parameter server: weights that workers change by gradients, each when it has one; collective.

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, of float16, bfloat16, float32 or float64: the first weights. Those of
            the servers count, with servers="node" on one node those of rank 0. They are copied.
        sync
            When gradients are used, and who goes on: `BSP()`, the default, `ASP()`, `SSP(s)`, `DSSP(lo, hi)`,
            `ElasticBSP(lookahead)`, `EAMSGD(period, alpha)` and others; or a text such as "ssp:3", as
            `pycollectives.parameter_server.sync.parse` takes it.
        update
            How gradients change the weights: `SGD(rate, momentum)` or `Adam(rate)`; or a function `update(weights,
            gradient)`, which changes `weights` in place. Each server calls that of its own rank, in a thread, with its
            part of both: of the shape of `like` if it is the only server, else one-dimensional. With servers="node" on
            one node the rank that pushes calls it, one at a time. None under `EAMSGD`.
        servers
            Who has the weights: a number of ranks, the lowest, or a list of ranks. Each serves its part in the
            background, whatever its application does. "node": the weights lie in the node's shared memory, and whoever
            pushes updates them, so that no rank serves; on several nodes the lowest rank of each serves a part.
        workers
            The ranks that push. By default all with servers="node" and where every rank serves, else those that do not
            serve.
        nan
            What a push does whose values are not all finite: "reject" raises `ValueError`, "skip" counts it without an
            effect, "accept" does not look.
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
            The memory that ranks of a node share cannot be had.
        ClosedError
            The communicator is closed.
        """
        return self.create(
            ParameterServer,
            like=like,
            sync=sync,
            update=update,
            servers=servers,
            workers=workers,
            nan=nan,
            name=name,
        )
