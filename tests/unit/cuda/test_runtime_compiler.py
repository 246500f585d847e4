"""What NVRTC makes of the kernels, where there is one: it needs no device. What it makes was never run on a GPU."""

from __future__ import annotations

import os
import re
import site
from pathlib import Path

import pytest
from devices import HAS_CUDA, needs_cuda

from pycollectives import _testing as testing


def library() -> str:
    """NVRTC's file: PYC_TEST_NVRTC, of a package such as nvidia-cuda-nvrtc, or where the system looks; empty: none."""
    packages = [
        path for folder in site.getsitepackages() for path in Path(folder, "nvidia").glob("*/lib/libnvrtc.so.*")
    ]
    candidates = [os.environ.get("PYC_TEST_NVRTC", ""), *map(str, packages), "libnvrtc.so.13", "libnvrtc.so.12"]
    usable = [name for name in candidates if name and HAS_CUDA and testing.why_no_compiler(name) == ""]
    return usable[0] if usable else ""


NVRTC = library()
needs_nvrtc = pytest.mark.skipif(
    not NVRTC, reason="there is no libnvrtc (pip install nvidia-cuda-nvrtc, or its file in PYC_TEST_NVRTC)"
)


@needs_nvrtc
@pytest.mark.parametrize("capability", [75, 90])
def test_it_compiles_the_kernels(capability):
    ptx, machine_code = testing.compile_kernels(NVRTC, capability)
    assert machine_code.startswith(b"\x7fELF")  # which an older driver takes, where it may not take the PTX
    assert all(f".text.{name}".encode() in machine_code for name in testing.kernel_names())
    assert f".target sm_{capability}" in ptx
    assert set(re.findall(r"\.entry (\w+)", ptx)) == set(testing.kernel_names())
    fold = ptx[ptx.index(".entry pyc_fold_sum_float32") :]
    fold = fold[: fold.index("\n}")]
    assert len(re.findall(r"ld\.global\.v4", fold)) >= 5  # 16 bytes, and four inputs ahead
    assert re.search(r"\bfma\b|\bfma\.|\.ftz|div\.(full|approx)", ptx) is None  # the bits of the host


@needs_nvrtc
def test_a_device_that_is_newer_than_the_compiler():
    """Gets code of the newest that it knows, which the driver compiles further."""
    ptx, machine_code = testing.compile_kernels(NVRTC, 999)
    (target,) = re.findall(r"\.target sm_(\d+)", ptx)
    assert 90 <= int(target) < 999
    assert machine_code == b""


@needs_nvrtc
def test_a_device_that_is_too_old():
    with pytest.raises(RuntimeError, match=r"^NVRTC \d+\.\d+ compiles nothing for compute capability 2\.1$"):
        testing.compile_kernels(NVRTC, 21)


@needs_nvrtc
def test_a_compiler_that_is_newer_than_the_driver():
    said = testing.why_no_compiler_for(NVRTC, 11)
    assert re.fullmatch(r"NVRTC \d+\.\d+ is newer than the driver, which is for CUDA 11", said)
    assert testing.why_no_compiler_for(NVRTC, 99) == ""


@needs_cuda
def test_a_compiler_that_is_not_there():
    said = testing.why_no_compiler("libnone.so.7")
    assert said.startswith("no compiler: libnone.so.7: cannot open shared object file")


@needs_cuda
def test_a_library_that_is_no_compiler():
    assert testing.why_no_compiler("libc.so.6") == "the compiler libc.so.6 has no nvrtcGetErrorString"
