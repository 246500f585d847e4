"""What nvcc makes of the kernels. Without nvcc, these tests are skipped: nothing of it can be seen."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from devices import needs_cuda

from pycollectives import _testing as testing
from pycollectives.support.native import core

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "csrc" / "memory" / "cuda" / "kernels.cu"
ARCHITECTURES = {75, 80, 86, 89, 90}
PTX, MACHINE_CODE = 1, 2


def tool(name: str) -> str | None:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which(name) or shutil.which(name, path=f"{home}/bin")


NVCC = tool("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="there is no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda")


def compile_kernels(*options: str) -> str:
    """Compile as the build does; what the compiler says."""
    command = [NVCC, "-std=c++17", "-O3", "--fmad=false", "-I", ROOT / "csrc", *options, KERNELS]
    if shutil.which("ccache") and "-c" in options:
        command.insert(0, "ccache")
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # a sanitizer is for us
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def images(code: bytes) -> list[tuple[int, int]]:
    """Kind and architecture of what is in a fat binary."""
    magic, _, header, size = struct.unpack_from("<IHHQ", code)
    assert magic == 0xBA55ED50
    found, at = [], header
    while at < header + size:
        kind, _, length, bytes_ = struct.unpack_from("<HHIQ", code, at)
        found.append((kind, struct.unpack_from("<I", code, at + 28)[0]))
        at += length + bytes_
    return found


@needs_cuda
@needs_nvcc
def test_the_module_has_code_of_every_architecture():
    code = testing.fat_binary()
    assert code, core.cuda_availability()["reason"]
    assert {arch for kind, arch in images(code) if kind == MACHINE_CODE} == ARCHITECTURES
    assert [arch for kind, arch in images(code) if kind == PTX] == [max(ARCHITECTURES)]
    assert len(code) < 2 << 20


@needs_cuda
def test_without_device_code_there_is_a_reason():
    assert bool(testing.fat_binary()) or "built" in core.cuda_availability()["reason"]


@needs_nvcc
@pytest.mark.skipif(tool("cuobjdump") is None, reason="there is no cuobjdump")
@needs_cuda
def test_cuobjdump_finds_the_architectures(tmp_path):
    file = tmp_path / "kernels.fatbin"
    file.write_bytes(testing.fat_binary())
    listed = subprocess.run([tool("cuobjdump"), "--list-elf", file], capture_output=True, text=True, check=True).stdout
    assert {int(arch) for arch in re.findall(r"sm_(\d+)", listed)} == ARCHITECTURES


@needs_nvcc
@needs_cuda
def test_the_kernels_are_those_that_are_asked_for(tmp_path):
    file = tmp_path / "kernels.ptx"
    compile_kernels("-arch=compute_90", "-ptx", "-o", str(file))
    text = file.read_text()
    assert set(re.findall(r"\.entry (\w+)", text)) == set(testing.kernel_names())
    fold = text[text.index(".entry pyc_fold_sum_float32") :]
    fold = fold[: fold.index("\n}")]
    assert len(re.findall(r"ld\.global\.v4", fold)) >= 5  # 16 bytes, and four inputs ahead
    assert "st.global.v4" in fold
    assert re.search(r"\bfma\b|\bfma\.|\.ftz|div\.(full|approx)", text) is None  # the bits of the host


@needs_nvcc
@pytest.mark.parametrize("architecture", [75, 90])
def test_nothing_is_spilled(architecture, tmp_path):
    said = compile_kernels(f"-arch=sm_{architecture}", "--resource-usage", "-c", "-o", str(tmp_path / "kernels.o"))
    used = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert len(used) == len(re.findall(r"Compiling entry function", said)) >= 60
    assert set(used) == {("0", "0", "0")}
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", said)]
    assert max(registers) <= 128  # of 65536: two blocks of 256 threads fit


@needs_nvcc
def test_our_declarations_are_those_of_the_driver():
    """Functions take as many arguments of the same sizes, and numbers are the same."""
    include = Path(NVCC).resolve().parent.parent / "include"
    include = include if (include / "cuda.h").exists() else Path("/usr/local/cuda/include")
    if not (include / "cuda.h").exists():
        pytest.skip("there is no cuda.h")
    source = ROOT / "tests" / "unit" / "cuda" / "declarations.cc"
    command = ["g++", "-std=c++20", "-fsyntax-only", "-I", ROOT / "csrc", "-isystem", include, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
