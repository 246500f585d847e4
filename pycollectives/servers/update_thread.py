"""The thread that calls a server's update function while the engine serves."""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .. import _core


class UpdateThread:
    """Calls the function until every rank has closed the server; prints a traceback if the function raises.

    The thread is a daemon: if the program ends with an exception, it need not wait for the other ranks.
    """

    def __init__(self, calls: _core.UpdateCalls, name: str) -> None:
        """Start the thread for the server `name`."""
        self._calls = calls
        self._name = name
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"update of {name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise `RuntimeError` if the update function has failed; call this after every rank has closed the server."""
        self._thread.join()
        if self._error is not None:
            raise RuntimeError(f"{self._name!r}: the update function has raised an exception") from self._error

    def _run(self) -> None:
        try:
            self._calls.serve()
        except BaseException as error:  # SystemExit would end the thread silently
            self._error = error
            traceback.print_exc()
