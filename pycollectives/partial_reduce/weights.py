"""The weights that a partial reduce averages in place: in memory of the host, or on a CUDA device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..support.buffers import array_of, as_bytes_exporter
from ..support.device_arrays import fitting_array
from ..support.validation import with_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import _core
    from ..support.device_arrays import DeviceArray
    from .arguments import PartialReduceSpecification

__all__ = ["DeviceWeights", "HostWeights"]


class HostWeights:
    """Buffers of the host."""

    def __init__(self, collective: _core.PartialReduce, specification: PartialReduceSpecification, like: Any) -> None:
        """`like`: as at creation."""
        self._collective = collective
        self._specification = specification
        self._last = array_of(like)  # what was passed last

    def sync(
        self, weights: Any, stream: Any, *, step: int, group: Sequence[int], timeout: float | None
    ) -> tuple[tuple[int, ...], int, float, int]:
        """As the engine's."""
        self._refuse(stream)
        array = self._specification.writable(weights)
        info = self._collective.sync(as_bytes_exporter(array), step=step, group=group, timeout=timeout)
        self._last = array
        return info

    def close(self, weights: Any, stream: Any) -> None:
        """Leave with final weights; None: what was passed last."""
        self._refuse(stream)
        final = self._last if weights is None else self._specification.readable(weights)
        self._collective.close(as_bytes_exporter(final))

    def _refuse(self, stream: Any) -> None:
        if stream is not None:
            raise ValueError(
                f"{self._specification.name}: stream: expected None, as this collective is on the host, got {stream!r}"
            )


class DeviceWeights:
    """Arrays on a device, with the streams on which the caller works with them."""

    def __init__(
        self, collective: _core.DevicePartialReduce, specification: PartialReduceSpecification, like: Any
    ) -> None:
        """`like`: as at creation."""
        self._collective = collective
        self._specification = specification
        self._last = like
        self._stream: Any = None  # ... and the stream that was given with it

    def sync(
        self, weights: Any, stream: Any, *, step: int, group: Sequence[int], timeout: float | None
    ) -> tuple[tuple[int, ...], int, float, int]:
        """As the engine's."""
        array = self._described(weights, stream, writable=True)
        info = self._collective.sync(
            array.pointer, owner=array.owner, streams=array.streams, step=step, group=group, timeout=timeout
        )
        self._last, self._stream = weights, stream
        return info

    def close(self, weights: Any, stream: Any) -> None:
        """Leave with final weights; None: what was passed last."""
        if self._collective.closed or self._collective.failed:
            self._collective.close()
            return
        if weights is None:
            weights, stream = self._last, self._stream if stream is None else stream
        array = self._described(weights, stream, writable=False)
        self._collective.close(array.pointer, array.streams)

    def _described(self, weights: Any, stream: Any, *, writable: bool) -> DeviceArray:
        specification = self._specification
        try:
            return fitting_array(
                weights,
                specification.buffer,
                specification.checked_device,
                self._collective.device_of,
                stream=stream,
                writable=writable,
            )
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, specification.name) from None
