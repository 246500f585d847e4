"""What happens at import, in an interpreter of its own."""

import os
import pickle
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from mpi4py import MPI

import pycollectives.support
from pycollectives.slurm.profiles import tomllib
from pycollectives.support import extras, native

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import join_wheels

MPI_HERE = native._interface_of_mpi(MPI.get_vendor()[0], MPI._sizeof(MPI.Comm))


def run(program, env=None):
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd="/")  # not in the sources


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


def installed_as(folder, mpi):
    """Make the package as a wheel for several MPIs installs it, with the extension of this MPI under the name `mpi`."""
    package = folder / "pycollectives"
    package.mkdir()
    for path in Path(pycollectives.support.__file__).parents[1].iterdir():
        name = path.name.replace("_core.", f"_core.{mpi}.", 1) if path.suffix == ".so" else path.name
        (package / name).symlink_to(path)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_the_extension_for_the_mpi_of_mpi4py_is_loaded(tmp_path):
    env = installed_as(tmp_path, MPI_HERE)
    (tmp_path / "pycollectives" / f"_core.another{EXTENSION_SUFFIXES[0]}").touch()
    done = run(
        "import pycollectives as pc; from pycollectives.support.native import core; from pycollectives import _core;"
        "from mpi4py import MPI; print(pc.RoundInfo.__module__, core.__file__, _core is core);"
        "pc.Communicator(MPI.COMM_SELF).close()",
        env,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"pycollectives._core {tmp_path}/pycollectives/_core.{MPI_HERE}{EXTENSION_SUFFIXES[0]} True\n"


def test_a_process_that_unpickles_loads_the_extension(tmp_path):
    env = installed_as(tmp_path, MPI_HERE)
    (tmp_path / "pycollectives" / "_core.py").write_text(join_wheels.LOADER)
    info = native.core.restored_round_info(3, 0, True, [0, 1], 2, 0, 0, False, 0, [])
    done = run(f"import pickle; print(pickle.loads({pickle.dumps(info)!r}).round)", env)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_an_extension_of_another_python_in_the_sources_is_no_variant(tmp_path):
    """As an editable installation with another Python leaves it."""
    sources = tmp_path / "pycollectives"
    sources.mkdir()
    for path in (Path(__file__).parents[3] / "pycollectives").iterdir():
        (sources / path.name).symlink_to(path)
    (sources / "_core.cpython-39-x86_64-linux-gnu.so").touch()
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run("import pycollectives as pc; pc.RoundInfo; print(pc.__file__)", env)
    assert (done.returncode, done.stdout) == (0, f"{sources}/__init__.py\n"), done.stderr


@pytest.mark.parametrize("module", extras.COMMAND_LINE)
def test_a_command_without_its_modules_says_what_to_install(module):
    done = run(
        f"import runpy, sys; sys.modules[{module!r}] = None; sys.argv[1:] = ['info'];"
        "runpy.run_module('pycollectives', run_name='__main__')"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"pycollectives: the command line needs {module}: pip install 'pycollectives[cli]', or in a checkout: "
        "pip install '.[cli]'\n"
    )


def test_an_mpi_without_an_extension_is_refused_with_what_to_do(tmp_path):
    done = run("import pycollectives; pycollectives.RoundInfo", installed_as(tmp_path, "another"))
    assert "ImportError: the extension pycollectives._core cannot be loaded" in done.stderr
    assert ": this wheel has builds only for another. If it is missing," in done.stderr
    assert "pip install --no-binary pycollectives pycollectives" in done.stderr


@pytest.mark.parametrize(
    ("vendor", "bytes_of_comm", "interface"),
    [("Open MPI", 8, "openmpi"), ("MPICH", 4, "mpich"), ("Intel MPI", 4, "mpich"), ("another", 8, "another")],
)
def test_the_interface_of_an_mpi(vendor, bytes_of_comm, interface):
    assert native._interface_of_mpi(vendor, bytes_of_comm) == interface


def test_a_launcher_of_another_mpi_is_noticed(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    done = run("import pycollectives as pc; from mpi4py import MPI; pc.Communicator(MPI.COMM_SELF).close()")
    assert "<string>:1: RuntimeWarning: SLURM_STEP_NUM_TASKS gives 4 ranks, but MPI.COMM_WORLD has 1" in done.stderr


def test_every_package_is_installed():
    """One that is left out of the list is found in this tree all the same, and is missing from a wheel."""
    root = Path(__file__).resolve().parents[3]
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {".".join(path.relative_to(root).parent.parts) for path in root.glob("pycollectives/**/__init__.py")}
    assert there <= set(listed)
