"""Rank 1 is in C with the GIL held, in the middle of a read; the others wait for it in round 1."""

import ctypes
import os
import sys
from pathlib import Path

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

folder, path = arguments()
ONE = np.ones(1)
with pc.Communicator(WORLD, ranks_per_node=WORLD.size if path == "board" else 1) as comm:
    ar = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full(), name="gradients")
    ar.allreduce(ONE, timeout=30)
    ready = Path(folder) / f"pid-{comm.rank}"
    ready.with_suffix(".new").write_text(str(os.getpid()))
    ready.with_suffix(".new").rename(ready)
    if comm.rank == 1:
        gate = os.open(Path(folder) / "gate", os.O_RDWR)
        letter = ctypes.create_string_buffer(1)
        say("read", ctypes.PyDLL(None).read(gate, letter, 1))  # ends by itself only if the signal interrupts it
    try:
        result, _ = ar.allreduce(ONE, timeout=60)
    except pc.StallError as stall:
        sys.exit(str(stall))
    say("sum", result[0])
