"""Runs a benchmark with --device cuda on the simulated driver, to try it out; its times mean nothing.

    mpirun -n 4 python tests/gpu/simulated_bench.py --devices 1 -- skew --policy solo --bytes 4096

With --nccl, MPI stands in for NCCL where each rank has a device.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from mpi4py import MPI

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "support")]

from common import device_arrays  # noqa: E402
from simulated_arrays import SimulatedArrays  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--devices", type=int, default=1, help="of each rank's driver (default: 1)")
parser.add_argument("--nccl", action="store_true")
parser.add_argument("bench")
parser.add_argument("options", nargs=argparse.REMAINDER)
given = parser.parse_args()
SimulatedArrays.use(MPI.COMM_WORLD.rank, devices=given.devices, has_nccl=given.nccl)
device_arrays.LIBRARIES[:] = [SimulatedArrays]
script = ROOT / "bench" / f"{given.bench}.py"
sys.argv = [str(script), *given.options, "--device", "cuda"]
runpy.run_path(str(script), run_name="__main__")
