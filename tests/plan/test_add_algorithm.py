"""An algorithm is added in one file: nothing else is edited, and everything that iterates the registry has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plans import asked_to_start, doubling, partial, registered

from pycollectives import _testing
from pycollectives.support.native import core

ROOT = Path(__file__).parents[2]
STAR = Path(__file__).parent / "data" / "star.cc"


def test_written_in_python():
    name = "doubling written in Python"
    core.register_algorithm(name, doubling)
    assert name in [algorithm["name"] for algorithm in core.algorithms()]
    for size in (1, 2, 3, 8, 13):
        assert _testing.check_allreduce(registered(name, size, 5)) == []
        assert _testing.check_activation(partial(name, size, 5, "tree"), asked_to_start([size - 1], "tree")) == []
    told = core.simulate(size=5, work=np.ones((5, 3)), calls=np.full(5, 3), policy="full", algorithm=name)
    assert told["deadlock"] is None
    assert (told["contributors"][told["call"] >= 0] == 5).all()
    with pytest.raises(ValueError, match=f"'{name}' is registered already"):
        core.register_algorithm(name, doubling)


CHECK = """
import numpy as np
from pycollectives.support.native import core

[star] = [algorithm for algorithm in core.algorithms() if algorithm["name"] == "star"]
assert star["steps"] == "2", star
for size in range(1, 20):
    told = core.simulate(size=size, work=np.ones((size, 3)), calls=np.full(size, 3), policy="full", algorithm="star")
    assert told["deadlock"] is None, told
    assert (told["contributors"][told["call"] >= 0] == size).all(), told
print("star passes")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_written_in_cpp(tmp_path):
    """Build a copy of the tree with one more file, as `pip install` would.

    Below its top the copy has the paths of the tree that `make install` built, so that a compiler cache, if there is
    one, has all but that file.
    """
    tree = tmp_path / "tree"
    tools = os.pathsep.join([str(tree / ".venv" / "bin"), os.environ["PATH"]])
    for tool in ("cmake", "ninja"):
        if shutil.which(tool, path=tools) is None:
            pytest.skip(f"needs {tool}")
    pytest.importorskip("pybind11")
    for folder in ("_build", "csrc", "pycollectives", "tools"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for file in ("CMakeLists.txt", "README.md", "CMakePresets.json", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / file, tree)
    shutil.copy(STAR, tree / "csrc" / "algorithms")
    (tree / ".venv").symlink_to(sys.prefix)

    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYC_")},
        "PATH": tools,
        "PYTHONPATH": str(tree),
        "PYC_BUILD_DIR": str(tree / "build" / "any"),
        "CCACHE_BASEDIR": str(tree),
    }
    python = str(tree / ".venv" / "bin" / Path(sys.executable).name)
    for command in (["setup.py", "--quiet", "build_ext", "--inplace"], ["-c", CHECK]):
        done = subprocess.run(
            [python, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "star passes" in done.stdout
