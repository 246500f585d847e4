"""What the build does about CUDA."""

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


def compiled(folder: Path, wanted: str) -> list[str]:
    """Configure the project; the files that its libraries are made of, by the layer and its folder."""
    pytest.importorskip("pybind11")
    command = [
        CMAKE, "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DPYC_CUDA={wanted}", "-DPYC_UNITY=OFF",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    entries = json.loads((folder / "compile_commands.json").read_text())
    return [os.path.relpath(entry["file"], ROOT / "csrc") for entry in entries]


@pytest.mark.skipif(shutil.which("ninja") is None, reason="there is no ninja")
@pytest.mark.parametrize("wanted", ["ON", "OFF"])
def test_each_file_is_compiled_once_and_without_cuda_none_of_its_layer(tmp_path, wanted):
    files = [file for file in compiled(tmp_path, wanted) if not file.startswith("..")]
    assert "memory/device_memory.cc" in files
    assert len(files) == len(set(files))
    assert any(file.startswith("memory/cuda/") for file in files) == (wanted == "ON")


def test_other_words_are_refused(tmp_path):
    command = [CMAKE, "-S", ROOT, "-B", tmp_path, "-DPYC_CUDA=AUTO"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "PYC_CUDA: expected ON or OFF, got 'AUTO'" in done.stderr
