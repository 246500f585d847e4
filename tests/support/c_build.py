"""Build extension modules in C and Cython for tests, against the installed headers."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import mpi4py
import numpy as np

import pycollectives as pc

STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]


def build(source, folder, *, flags=(), include=None):
    """Build a module from a .c or .pyx file with the MPI's compiler; return the file of the module."""
    source, folder = Path(source), Path(folder)
    options = list(flags)
    if source.suffix == ".pyx":
        generated = folder / f"{source.stem}.c"
        run([sys.executable, "-m", "cython", "-3", str(source), "-o", str(generated)], folder)
        source = generated
    module = folder / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    folders = [sysconfig.get_path("include"), mpi4py.get_include(), np.get_include(), str(include or pc.get_include())]
    compiler = shlex.split(os.environ.get("MPICC", str(Path(sys.executable).with_name("mpicc"))))
    includes = [part for each in folders for part in ("-isystem" if each == folders[0] else "-I", each)]
    run([*compiler, "-O0", "-shared", "-fPIC", *options, *includes, str(source), "-o", str(module)], folder)
    return module


def built_by_rank_0(rank, sources, limit=120.0):
    """Build modules on rank 0, once for all jobs of a test run, while others sleep; return the files on all ranks."""
    texts = [Path(each).read_bytes() for each in (*sources, Path(pc.get_include()) / "pycollectives.h", __file__)]
    key = hashlib.sha256(b"".join([sys.executable.encode(), *texts])).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"pyc-modules-{os.getuid()}-{key}"
    if rank == 0 and (folder / "failed").exists():
        shutil.rmtree(folder)
    if rank == 0 and not folder.exists():
        with tempfile.TemporaryDirectory() as made:
            outcome = Path(made) / "built"
            outcome.mkdir()
            try:
                for source, flags in sources.items():
                    build(source, outcome, flags=flags)
            except AssertionError as error:
                (outcome / "failed").write_text(str(error))
            outcome.rename(folder)
    deadline = time.monotonic() + limit
    while not folder.exists():
        assert time.monotonic() < deadline, f"rank 0 has not built {folder}"
        time.sleep(0.05)
    if (folder / "failed").exists():
        raise AssertionError((folder / "failed").read_text())
    return sorted(folder.glob("*.so"))


def load(module):
    """Import a module from its file."""
    spec = importlib.util.spec_from_file_location(Path(module).name.partition(".")[0], module)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def run(command, folder):
    outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert outcome.returncode == 0, f"{shlex.join(command)}\n{outcome.stdout}{outcome.stderr}"
