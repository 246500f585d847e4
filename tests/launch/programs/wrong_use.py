"""Runs a command line with several lists of arguments, one after the other, as each job would.

A script or a module, then the lists in JSON. Rank 0 prints in JSON how each ended on all ranks, and what they printed.
"""

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path

from mpi4py import MPI

_, _, program, lists = sys.argv  # the benchmarks have a `common` too, so this is not from there


def ended(words: list[str]) -> tuple[object, str]:
    """Return the exit status, and what this rank printed on stderr."""
    sys.argv = [program, *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if program.endswith(".py"):
                runpy.run_path(program, run_name="__main__")
            else:
                runpy.run_module(program, run_name="__main__")
        except SystemExit as end:
            return end.code, err.getvalue()
    return 0, err.getvalue()


sys.path.insert(0, str(Path(program).parent))
for words in json.loads(lists):
    everywhere = MPI.COMM_WORLD.gather(ended(words))
    if everywhere is not None:
        statuses, texts = zip(*everywhere, strict=True)
        print(json.dumps([statuses, "".join(texts)]), flush=True)
