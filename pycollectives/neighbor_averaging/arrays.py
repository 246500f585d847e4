"""The application's arrays in calls of pairwise averaging: in host memory or on a CUDA device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.buffers import array_of, as_bytes_exporter, matching_array
from ..support.device_arrays import describe_device, fitting_array
from ..support.device_result import DeviceResult
from ..support.device_streams import handle_of_stream, refuse_stream

if TYPE_CHECKING:
    from .. import _core
    from ..support.device_arrays import DeviceArray
    from ..support.typing import Array
    from .arguments import PairwiseArguments


class HostArrays:
    """The engine's collective for arrays in host memory."""

    def __init__(self, arguments: PairwiseArguments, collective: _core.PairwiseAveraging) -> None:
        self._name = arguments.name
        self._buffer = arguments.initial.buffer
        self.collective = collective

    def read(self, out: object, stream: object) -> Array:
        refuse_stream(stream, self._name)
        if out is None:
            out = np.empty(self._buffer.shape, self._buffer.dtype)
        array = matching_array(out, self._buffer, name=self._name, writable=True)
        self.collective.read(as_bytes_exporter(array))
        return array

    def apply(self, delta: object, stream: object) -> None:
        refuse_stream(stream, self._name)
        self.collective.apply(as_bytes_exporter(matching_array(delta, self._buffer, name=self._name)))

    def given(self, mean: Array) -> Array:
        """Return the model `mean` as calls return models: as an array."""
        return mean


class DeviceArrays:
    """The engine's collective for arrays on a device, with the caller's streams.

    A call waits on the host until the stream of its array has finished its work, and then uses the array. A `read`
    without `out` writes its result in stream order on the newest call's stream, initially the stream of `initial`.
    """

    def __init__(self, arguments: PairwiseArguments, made: dict[str, Any]) -> None:
        """Make the collective with the engine's arguments `made`; collective."""
        from ..support.native import core

        initial = describe_device(arguments.initial.array)
        assert initial is not None
        assert arguments.initial.device is not None
        self._name = arguments.name
        self._device = arguments.initial.device
        self._stream = initial.stream
        self.buffer = arguments.initial.buffer
        self.collective: _core.DevicePairwiseAveraging = core.DevicePairwiseAveraging(
            device=self._device, initial=initial.pointer, streams=initial.streams, **made
        )

    def read(self, out: object, stream: object) -> Any:
        if out is None:
            if stream is not None:
                self._stream = handle_of_stream(stream)
            self.collective.read(self.shown, self._shown_to)
            return DeviceResult(self, None)
        array = self._fitting(out, stream, writable=True)
        self.collective.read(array.pointer, array.streams)
        self._stream = array.stream
        return out

    def apply(self, delta: object, stream: object) -> None:
        array = self._fitting(delta, stream, writable=False)
        self.collective.apply(array.pointer, array.streams)
        self._stream = array.stream

    def given(self, mean: Array) -> Any:
        """Copy the model `mean` to the device, and return it as calls return models."""
        self.collective.show(as_bytes_exporter(mean), self._shown_to)
        return DeviceResult(self, None)

    @property
    def shown(self) -> int:
        return self.collective.shown

    def fetched(self) -> Array:
        """Copy the memory at `shown` to the host."""
        values = np.empty(self.buffer.shape, self.buffer.dtype)
        self.collective.fetch(values)
        return values

    @property
    def _shown_to(self) -> list[int]:
        return [self._stream]

    def _fitting(self, x: object, stream: object, *, writable: bool) -> DeviceArray:
        device_of = self.collective.device_of
        return fitting_array(x, self.buffer, self._device, device_of, name=self._name, stream=stream, writable=writable)


def host_model(arguments: PairwiseArguments) -> Array:
    """Return the initial model in host memory, as a buffer for the engine."""
    return as_bytes_exporter(array_of(arguments.initial.array))
