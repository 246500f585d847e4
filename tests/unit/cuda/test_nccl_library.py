"""Which NCCL is found, and what is declared of it."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from devices import Host, Simulated, needs_cuda

from pycollectives import _testing as testing
from pycollectives.support.native import core

pytestmark = needs_cuda
ROOT = Path(__file__).resolve().parents[3]


def test_an_executor_without_nccl():
    device = Simulated()
    with pytest.raises(RuntimeError, match=r"^the simulated driver has no NCCL$"):
        device.executor.communicators()
    with pytest.raises(RuntimeError, match=r"^memory of the host has no library for it$"):
        Host().executor.communicators()
    device.driver.use_nccl(21304)
    with pytest.raises(RuntimeError, match=r"^NCCL 2\.13\.4 is too old: expected NCCL 2\.14 or later$"):
        device.executor.communicators()
    device.driver.use_nccl(2804)
    with pytest.raises(RuntimeError, match=r"^NCCL 2\.8\.4 is too old"):
        device.executor.communicators()
    device.driver.use_nccl(21403)
    assert device.executor.communicators().version == "2.14.3"
    device.end()


def test_a_library_that_is_no_nccl():
    assert testing.why_no_nccl("libnone.so.7").startswith("no NCCL: libnone.so.7: cannot open shared object file")
    assert testing.why_no_nccl("libc.so.6") == "the NCCL libc.so.6 has no ncclGetVersion"


def test_which_nccl_is_found():
    """That of this machine, or, in tests, of the simulated driver."""
    version, reason = core.nccl()
    assert bool(version) != bool(reason)
    device = Simulated()
    device.driver.use()
    try:
        assert core.nccl() == ("", "the simulated driver has no NCCL")
        device.driver.use_nccl(23203)
        assert core.nccl() == ("2.32.3", "")
    finally:
        device.driver.use_no_more()
    device.end()


def nccl_includes() -> list[Path]:
    """Folders with nccl.h and what it includes."""
    home = os.environ.get("NCCL_HOME")
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    wheel = Path(sysconfig.get_path("purelib")) / "nvidia" / "nccl" / "include"
    places = [*([Path(home) / "include"] if home else []), cuda, Path("/usr/include"), wheel]
    found = next((place for place in places if (place / "nccl.h").exists()), None)
    return [found, cuda] if found and (cuda / "cuda_runtime.h").exists() else []


def test_our_declarations_are_those_of_nccl():
    """Functions take as many arguments of the same sizes, and numbers are the same."""
    folders = nccl_includes()
    if not folders:
        pytest.skip("there is no nccl.h, or no CUDA toolkit")
    source = ROOT / "tests" / "unit" / "cuda" / "nccl_declarations.cc"
    options = [word for folder in folders for word in ("-isystem", folder)]
    command = ["g++", "-std=c++20", "-fsyntax-only", "-I", ROOT / "csrc", *options, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
