"""The partial allreduce of arrays on a CUDA device: wraps the engine's collective for the public class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.device_arrays import fitting_array
from ..support.device_result import DeviceResult
from ..support.errors import StallError
from ..support.validation import checked_timeout

if TYPE_CHECKING:
    from .. import _core
    from .._core import Round, RoundInfo
    from ..arguments import Template
    from ..support.device_arrays import DeviceArray
    from ..support.typing import Array


class DeviceCollective:
    """Wraps the engine's collective on a device: calls take arrays on that device, and the caller's stream."""

    def __init__(self, collective: _core.DevicePartialAllreduce, like: Template) -> None:
        """Wrap `collective`; `like` describes an array on its device."""
        assert like.device is not None
        assert like.stream is not None
        self._collective = collective
        self._device = like.device
        self._stream = like.stream  # the newest contribution's stream
        self._contributed: object = None  # the newest contribution, which the stream may still read
        self.buffer = like.buffer

    def __getattr__(self, name: str) -> Any:
        """Return the engine's attribute: calls without arrays need no wrapper."""
        return getattr(self._collective, name)

    def contribute(self, x: object, *, stream: Any = None) -> Round:
        array = self._described(x, stream)
        handle = self._collective.contribute(array.pointer, array.streams)
        self._stream = array.stream
        self._contributed = array.owner
        return handle

    def contribute_and_wait(self, x: object, *, timeout: float | None = None, stream: Any = None) -> RoundInfo:
        """Return `contribute(x).wait(timeout=timeout)`; refuse an invalid time limit before contributing."""
        limit = checked_timeout(timeout)
        return self.contribute(x, stream=stream).wait(timeout=limit)

    def allreduce(
        self, x: object, out: object = None, *, timeout: float | None = None, stream: Any = None
    ) -> tuple[Any, RoundInfo]:
        receiver = None if out is None else self.receiver(out, stream)
        try:
            info = self.contribute_and_wait(x, timeout=timeout, stream=stream)
        except StallError as error:
            error.advise("The data is contributed: do not contribute it again")
            raise
        return self.given(out, receiver), info

    def receiver(self, out: object, stream: Any = None) -> DeviceArray:
        array = self._described(out, stream)
        if array.readonly:
            raise BufferError(f"{self.name}: out: expected a writable array, got one that is read-only")
        return array

    def given(self, out: object, receiver: DeviceArray | None) -> Any:
        """Return the newest result, in `out` if it is given."""
        if receiver is None:
            return self.result
        self._collective.give(receiver.pointer, receiver.stream)
        return out

    @property
    def result(self) -> DeviceResult:
        """The newest result, in stream order on the newest contribution's stream."""
        self._collective.give(self._collective.shown, self._stream)
        return DeviceResult(self, self._stream)

    @property
    def shown(self) -> int:
        return self._collective.shown

    def fetched(self) -> Array:
        values = np.empty(self.buffer.shape, self.buffer.dtype)
        self._collective.fetch(values)
        return values

    def _described(self, x: object, stream: Any) -> DeviceArray:
        return fitting_array(x, self.buffer, self._device, self._collective.device_of, name=self.name, stream=stream)
