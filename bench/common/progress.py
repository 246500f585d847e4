"""A progress bar for long sweeps: on rank 0, on stderr, and only for a person."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress

Step = Callable[[str], None]


@contextlib.contextmanager
def progress_bar(total: int, *, shown: bool) -> Iterator[Step]:
    """Yields what is called with the name of each step as it begins.

    Drawn at those moments only, without a thread, so that nothing of it runs in a timed region.
    """
    if not (shown and sys.stderr.isatty()):
        yield lambda name: None
        return
    with Progress(console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", total=total)
        begun = 0

        def step(name: str) -> None:
            nonlocal begun
            progress.update(task, description=name, completed=begun, refresh=True)
            begun += 1

        yield step
