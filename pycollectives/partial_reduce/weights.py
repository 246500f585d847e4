"""The weights that a partial reduce averages in place: in host memory or on a CUDA device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..support.buffers import as_bytes_exporter, matching_array, writable_array
from ..support.device_arrays import fitting_array
from ..support.validation import with_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .. import _core
    from ..support.buffers import BufferDescription
    from ..support.device_arrays import DeviceArray
    from ..support.typing import Array
    from .arguments import PartialReduceArguments

__all__ = ["DeviceWeights", "HostWeights"]


class HostWeights:
    """Weights in host memory."""

    def __init__(self, collective: _core.PartialReduce, arguments: PartialReduceArguments) -> None:
        """Wrap `collective`, which was made with `arguments`."""
        self._collective = collective
        self._name = arguments.name
        self._like = arguments.like
        self._last: Array | None = None  # the array of the last call

    def average(
        self, weights: Any, stream: Any, *, step: int, group: Sequence[int], timeout: float | None
    ) -> tuple[tuple[int, ...], int, float, int]:
        """As the engine's."""
        self._refuse(stream)
        array = self._checked(writable_array, weights)
        info = self._collective.average(as_bytes_exporter(array), step=step, group=group, timeout=timeout)
        self._last = array
        return info

    def leave(self, weights: Any, stream: Any) -> None:
        """Leave with final weights; None for the last array, if any."""
        self._refuse(stream)
        final = self._last if weights is None else self._checked(matching_array, weights)
        self._collective.leave(None if final is None else as_bytes_exporter(final))

    def forget(self) -> None:
        """Leave later without the array of the last call, which is not the newest."""
        self._last = None

    def _checked(self, check: Callable[[Any, BufferDescription], Array], weights: Any) -> Array:
        try:
            return check(weights, self._like.buffer)
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, self._name) from None

    def _refuse(self, stream: Any) -> None:
        if stream is not None:
            raise ValueError(f"{self._name}: stream: expected None, as this collective is on the host, got {stream!r}")


class DeviceWeights:
    """Weights on a device, with the caller's streams."""

    def __init__(self, collective: _core.DevicePartialReduce, arguments: PartialReduceArguments) -> None:
        """Wrap `collective`, which was made with `arguments`."""
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
        """As the engine's."""
        array = self._described(weights, stream, writable=True)
        info = self._collective.average(
            array.pointer, owner=array.owner, streams=array.streams, step=step, group=group, timeout=timeout
        )
        self._last, self._stream = weights, stream
        return info

    def leave(self, weights: Any, stream: Any) -> None:
        """Leave with final weights; None for the last array, if any."""
        if weights is None:
            weights, stream = self._last, self._stream if stream is None else stream
        if weights is None or self._collective.closed or self._collective.failed:
            self._collective.leave()
            return
        array = self._described(weights, stream, writable=False)
        self._collective.leave(array.pointer, array.streams)

    def _described(self, weights: Any, stream: Any, *, writable: bool) -> DeviceArray:
        try:
            return fitting_array(
                weights, self._buffer, self._device, self._collective.device_of, stream=stream, writable=writable
            )
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, self._name) from None
