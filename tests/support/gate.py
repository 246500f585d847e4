"""Memory at which a thread stops, so that a test can hold it in the middle of a copy."""

from __future__ import annotations

import ctypes
import mmap
import signal
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import threading
    from types import TracebackType

    from numpy.typing import NDArray
    from typing_extensions import Self

__all__ = ["Gate"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
_libc.signal.restype = ctypes.c_void_p
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Gate:
    """An array with a page in its middle that no thread passes until the gate is opened.

    A thread that touches the page gets SIGSEGV. Its handler is C's `usleep`, which interprets the signal's number as 11
    microseconds: the thread sleeps, touches the page again, and so on. Inside the `with` statement Python itself must
    not touch the array, since it would hold its lock while it sleeps. The handler stays as long as any gate exists: a
    thread may touch the page before it is opened, and receive the signal afterwards. Sanitizers let this handler
    replace theirs.
    """

    _living = 0
    _former: int | None = None  # the handler before the first gate

    def __init__(self, values: NDArray[np.generic]) -> None:
        """Make a gate that is shut inside the `with` statement; `values` are the content of the array."""
        self._memory = mmap.mmap(-1, values.nbytes)
        self.array = np.frombuffer(self._memory, values.dtype)
        self.array[:] = values
        self._first = values[0]
        middle = values.nbytes // 2
        self._page = self.array.ctypes.data + middle - middle % mmap.PAGESIZE

    def __enter__(self) -> Self:
        """Shut the gate."""
        if Gate._living == 0:
            Gate._former = _libc.signal(signal.SIGSEGV, ctypes.cast(_libc.usleep, ctypes.c_void_p))
        Gate._living += 1
        weakref.finalize(self, Gate._gone)
        self._allow(0)
        return self

    @classmethod
    def _gone(cls) -> None:
        cls._living -= 1
        if cls._living == 0:
            _libc.signal(signal.SIGSEGV, cls._former)

    def wait_until_written(self) -> None:
        """Wait until a thread that writes to the array has reached the page."""
        while self.array[0] == self._first:
            time.sleep(0.001)

    def wait_until_reached(self, by: threading.Thread) -> None:
        """Wait until the thread sleeps at the page, thousands of times a second."""
        status = Path(f"/proc/self/task/{by.native_id}/status")
        while int(status.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0]) < 300:
            time.sleep(0.001)

    def open(self) -> None:
        """Let the waiting thread continue."""
        self._allow(mmap.PROT_READ | mmap.PROT_WRITE)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Open the gate permanently."""
        self.open()

    def _allow(self, access: int) -> None:
        if _libc.mprotect(self._page, mmap.PAGESIZE, access) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
