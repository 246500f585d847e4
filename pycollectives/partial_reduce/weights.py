"""The weights that a partial reduce averages in place: in host memory or on a CUDA device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..support.buffers import as_bytes_exporter, matching_array
from ..support.device_arrays import fitting_array
from ..support.device_streams import refuse_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import _core
    from ..support.device_arrays import DeviceArray
    from ..support.typing import Array
    from .arguments import PartialReduceArguments


class HostWeights:
    """Weights in host memory."""

    def __init__(self, collective: _core.PartialReduce, arguments: PartialReduceArguments) -> None:
        self._collective = collective
        self._name = arguments.name
        self._buffer = arguments.like.buffer
        self._last: Array | None = None  # the array of the last call

    def average(
        self, weights: Any, stream: Any, *, step: int, group: Sequence[int], timeout: float | None
    ) -> tuple[tuple[int, ...], int, float, int]:
        refuse_stream(stream, self._name)
        array = matching_array(weights, self._buffer, name=self._name, writable=True)
        info = self._collective.average(as_bytes_exporter(array), step=step, group=group, timeout=timeout)
        self._last = array
        return info

    def leave(self, weights: Any, stream: Any) -> None:
        """Leave with the final weights; by default, the weights of the last call, if any."""
        refuse_stream(stream, self._name)
        final = self._last if weights is None else matching_array(weights, self._buffer, name=self._name)
        self._collective.leave(None if final is None else as_bytes_exporter(final))

    def forget(self) -> None:
        """Drop the array of the last call from Python, because C has made a later call."""
        self._last = None


class DeviceWeights:
    """Weights on a device, with the caller's streams."""

    def __init__(self, collective: _core.DevicePartialReduce, arguments: PartialReduceArguments) -> None:
        assert arguments.like.device is not None
        self._collective = collective
        self._name = arguments.name
        self._buffer = arguments.like.buffer
        self._device = arguments.like.device
        self._last: Any = None  # the array of the last call
        self._stream: Any = None  # ... and its stream

    def average(
        self, weights: Any, stream: Any, *, step: int, group: Sequence[int], timeout: float | None
    ) -> tuple[tuple[int, ...], int, float, int]:
        array = self._described(weights, stream, writable=True)
        info = self._collective.average(
            array.pointer, owner=array.owner, streams=array.streams, step=step, group=group, timeout=timeout
        )
        self._last, self._stream = weights, stream
        return info

    def leave(self, weights: Any, stream: Any) -> None:
        """Leave with the final weights; by default, the weights of the last call, if any."""
        if weights is None:
            weights, stream = self._last, self._stream if stream is None else stream
        if weights is None or self._collective.closed or self._collective.failed:
            self._collective.leave()
            return
        array = self._described(weights, stream, writable=False)
        self._collective.leave(array.pointer, array.streams)

    def _described(self, weights: Any, stream: Any, *, writable: bool) -> DeviceArray:
        device_of = self._collective.device_of
        return fitting_array(
            weights, self._buffer, self._device, device_of, name=self._name, stream=stream, writable=writable
        )
