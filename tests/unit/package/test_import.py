"""What happens at import, in an interpreter of its own."""

import subprocess
import sys
from pathlib import Path

from pycollectives.slurm.profiles import tomllib


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_import_starts_nothing():
    done = run(
        "import sys, threading, pycollectives as pc;"
        "pc.Quorum(2), pc.StallError, pc.wait_all, dir(pc);"
        "assert 'mpi4py.MPI' not in sys.modules;"
        "assert threading.active_count() == 1"
    )
    assert done.returncode == 0, done.stderr


def test_mpi_is_initialised_by_a_later_import_of_it():
    done = run("import pycollectives; from mpi4py import MPI; assert MPI.Is_initialized()")
    assert done.returncode == 0, done.stderr


def test_unknown_names():
    done = run("import pycollectives; pycollectives.Sole")
    assert "AttributeError: module 'pycollectives' has no attribute 'Sole'" in done.stderr


def test_another_mpi_library_is_refused_with_what_to_do():
    done = run(
        "import sys, types, pycollectives;"
        "core = types.ModuleType('pycollectives._core');"
        "core.mpi_library_version = lambda: 'MPI of another name 1.0';"
        "sys.modules['pycollectives._core'] = core; pycollectives._core = core;"
        "pycollectives.RoundInfo"
    )
    assert "ImportError: pycollectives and mpi4py use different MPI libraries" in done.stderr
    assert "MPI of another name 1.0" in done.stderr
    assert "pip install" in done.stderr


def test_a_launcher_of_another_mpi_is_noticed(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    done = run("import pycollectives as pc; from mpi4py import MPI; pc.Communicator(MPI.COMM_SELF).close()")
    assert "<string>:1: RuntimeWarning: SLURM_STEP_NUM_TASKS says 4 ranks, MPI.COMM_WORLD has 1" in done.stderr


def test_every_package_is_installed():
    """One that is left out of the list is found in this tree all the same, and is missing from a wheel."""
    root = Path(__file__).resolve().parents[3]
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {".".join(path.relative_to(root).parent.parts) for path in root.glob("pycollectives/**/__init__.py")}
    assert there <= set(listed)
