"""What the build does about CUDA: device_code.cmake in a project of its own, and the files of the whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CMAKE = shutil.which("cmake")
pytestmark = pytest.mark.skipif(CMAKE is None, reason="there is no cmake")

PROJECT = """\
cmake_minimum_required(VERSION 3.26)
project(pycollectives LANGUAGES CXX)
include({script})
message(STATUS "no device code: ${{PYC_NO_FAT_BINARY}}.")
message(STATUS "device code: ${{PYC_FAT_BINARY}}.")
"""


def configure(folder: Path, wanted: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "csrc" / "memory" / "cuda" / "device_code.cmake"
    (folder / "CMakeLists.txt").write_text(PROJECT.format(script=script))
    command = [CMAKE, "-S", folder, "-B", folder / "build", f"-DPYC_CUDA={wanted}", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def without_nvcc() -> list[str]:
    """Options that hide every nvcc there is."""
    nvcc = shutil.which("nvcc")
    hidden = {"/usr/local/cuda", "/usr/local/cuda/bin", *([str(Path(nvcc).parent)] if nvcc else [])}
    return [f"-DCMAKE_IGNORE_PATH={';'.join(hidden)}"]


def an_nvcc(folder: Path, text: str) -> str:
    """Option for a compiler that prints something and fails."""
    nvcc = folder / "nvcc"
    nvcc.write_text(f"#!/bin/sh\n{text}\n")
    nvcc.chmod(0o755)
    return f"-DPYC_NVCC={nvcc}"


def test_auto_without_nvcc_goes_on_and_says_why(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_HOME", raising=False)
    done = configure(tmp_path, "AUTO", *without_nvcc())
    assert done.returncode == 0, done.stderr
    assert "no device code: no nvcc was found when it was built (looked on PATH, in CUDA_HOME" in done.stdout
    assert "-- device code: ." in done.stdout


def test_on_without_nvcc_fails_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_HOME", raising=False)
    done = configure(tmp_path, "ON", *without_nvcc())
    said = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert "PYC_CUDA=ON, but no nvcc was found when it was built" in said
    assert "Put nvcc on PATH, set CUDA_HOME, or build with PYC_CUDA=AUTO." in said


@pytest.mark.parametrize("wanted", ["AUTO", "ON"])
def test_an_nvcc_that_does_not_work(tmp_path, wanted):
    done = configure(tmp_path, wanted, an_nvcc(tmp_path, "echo 'unsupported \"compiler\"' >&2; exit 1"))
    said = " ".join((done.stdout + done.stderr).split())
    assert (done.returncode == 0) == (wanted == "AUTO")
    assert "nvcc could not compile when it was built: unsupported 'compiler'" in said


def test_an_nvcc_that_works(tmp_path):
    done = configure(tmp_path, "ON", an_nvcc(tmp_path, "exit 0"))
    assert done.returncode == 0, done.stderr
    assert "device code: " + str(tmp_path / "build" / "cuda" / "kernels.fatbin") in done.stdout


def compiled(folder: Path, wanted: str) -> list[str]:
    """Configure the project; the files that its libraries are made of, by the layer and its folder."""
    pytest.importorskip("pybind11")
    command = [
        CMAKE, "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DPYC_CUDA={wanted}", f"-DPython_EXECUTABLE={sys.executable}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    entries = json.loads((folder / "compile_commands.json").read_text())
    return [os.path.relpath(entry["file"], ROOT / "csrc") for entry in entries]


@pytest.mark.skipif(shutil.which("ninja") is None, reason="there is no ninja")
@pytest.mark.parametrize("wanted", ["AUTO", "OFF"])
def test_each_file_is_compiled_once_and_without_cuda_none_of_its_layer(tmp_path, wanted):
    files = [file for file in compiled(tmp_path, wanted) if not file.startswith("..")]
    assert "memory/device_memory.cc" in files
    assert len(files) == len(set(files))
    assert any(file.startswith("memory/cuda/") for file in files) == (wanted == "AUTO")
