"""The PTX of the kernels: that it is made of these sources, what is in it, and that it compiles to machine code."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from devices import needs_cuda
from nightly import nightly_unless

from pycollectives import _testing as testing

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import device_code  # noqa: E402

PTX = gzip.decompress(device_code.FILE.read_bytes()).decode()


def tool(name: str) -> str | None:
    """A program of the CUDA toolkit."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which(name) or shutil.which(name, path=f"{home}/bin")


def test_it_is_made_of_these_sources():
    digest = PTX.splitlines(keepends=True)[0]
    assert digest == device_code.digest(), "kernels have changed: `make device-code`, and commit what it writes"


def test_the_sources_are_all_that_the_kernels_include():
    included = {
        name
        for source in device_code.SOURCES
        for name in re.findall(r'^#include ["<](.+)[">]', (ROOT / "csrc" / source).read_text(), re.MULTILINE)
    }
    assert included == {*device_code.SOURCES[1:], *device_code.STANDARD_HEADERS}


@pytest.mark.skipif(device_code.compiler() is None, reason=f"there is no {device_code.PACKAGE} {device_code.VERSION}")
def test_the_compiler_makes_the_same():
    assert device_code.compile_kernels(device_code.compiler()) == PTX


@needs_cuda
def test_the_module_has_it():
    assert testing.device_code() == PTX


@needs_cuda
def test_the_kernels_are_those_that_are_asked_for():
    assert set(re.findall(r"\.entry (\w+)", PTX)) == set(testing.kernel_names())
    fold = PTX[PTX.index(".entry pyc_fold_sum_float32") :]
    fold = fold[: fold.index("\n}")]
    assert len(re.findall(r"ld\.global\.v4", fold)) >= 5  # 16 bytes, and four inputs ahead
    assert "st.global.v4" in fold
    assert re.search(r"\bfma\b|\bfma\.|\.ftz|div\.(full|approx)", PTX) is None  # the bits of the host


@pytest.mark.skipif(tool("ptxas") is None, reason="there is no ptxas on PATH, in CUDA_HOME or in /usr/local/cuda")
@pytest.mark.parametrize("architecture", nightly_unless(lambda one: one == 75, [75, 90]))
def test_machine_code_spills_nothing(architecture, tmp_path):
    """As the driver makes it of the PTX."""
    file = tmp_path / "kernels.ptx"
    file.write_text(PTX)
    command = [tool("ptxas"), f"-arch=sm_{architecture}", "-v", file, "-o", tmp_path / "kernels.cubin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    used = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert len(used) == len(re.findall(r"Compiling entry function", said)) >= 60
    assert set(used) == {("0", "0", "0")}
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", said)]
    assert max(registers) <= 128  # of 65536: two blocks of 256 threads fit


@pytest.mark.skipif(tool("nvcc") is None, reason="there is no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda")
def test_our_declarations_are_those_of_the_driver():
    """Functions take as many arguments of the same sizes, and numbers are the same."""
    include = Path(tool("nvcc")).resolve().parent.parent / "include"
    include = include if (include / "cuda.h").exists() else Path("/usr/local/cuda/include")
    if not (include / "cuda.h").exists():
        pytest.skip("there is no cuda.h")
    source = ROOT / "tests" / "unit" / "cuda" / "declarations.cc"
    command = ["g++", "-std=c++20", "-fsyntax-only", "-I", ROOT / "csrc", "-isystem", include, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
