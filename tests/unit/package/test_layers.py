"""The layer check refuses each kind of forbidden include and import, and accepts this tree."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHECKER = ROOT / "tools" / "check_layers.py"

spec = importlib.util.spec_from_file_location("check_layers", CHECKER)
check_layers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_layers)


def check_file(root: Path, path: str, text: str) -> list[str]:
    """What the checker says of a tree with this project's layers and one file."""
    (root / "CMakeLists.txt").write_text((ROOT / "CMakeLists.txt").read_text())
    file = root / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return [str(violation) for violation in check_layers.check(root)]


def test_this_tree_keeps_its_layers():
    done = subprocess.run([sys.executable, CHECKER], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_layers_are_those_of_the_design():
    layers = check_layers.cpp_layers(ROOT)
    assert [*layers] == [
        "core", "groups", "schedule", "algorithms", "memory", "transport", "node", "engine", "services", "simulation",
        "bindings",
    ]  # fmt: skip
    assert layers["algorithms"] == {"core", "schedule", "algorithms"}
    assert layers["groups"] == {"core", "groups"}
    assert layers["memory"] == {"core", "memory"}
    assert layers["transport"] == {"core", "transport"}
    assert layers["bindings"] == {*layers}


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("csrc/core/a.h", '#include "schedule/schedule.h"'),
        ("csrc/algorithms/a.cc", '#include "memory/memory.h"'),
        ("csrc/memory/a.cc", '#  include  "transport/transport.h"'),
        ("csrc/transport/a.cc", '#include "../engine/engine.h"'),
        ("csrc/engine/a.cc", '#include "services/policy.h"'),
        ("csrc/engine/a.cc", '#include "engine.h"'),
        ("csrc/engine/a.cc", "#include <mpi.h>"),
        ("csrc/engine/a.cc", '#include "mpi.h"'),
        ("csrc/engine/a.cc", '#include "transport/mpi_transport.h"'),
        ("csrc/engine/mpi_a.cc", "#include <mpi.h>"),
        ("csrc/services/a.cc", "#include <pybind11/pybind11.h>"),
        ("csrc/transport/mpi_a.cc", "#include <mpi4py/mpi4py.h>"),
        ("csrc/other/a.cc", ""),
        ("pycollectives/topology.py", "from mpi4py import MPI"),
        ("pycollectives/policies.py", "from .communicator import Communicator"),
        ("pycollectives/policies.py", "from . import _core"),
        ("pycollectives/errors.py", "def f():\n    import pycollectives.partial_allreduce.collective"),
        ("pycollectives/partial.py", "import torch"),
        ("pycollectives/train/loop.py", "try:\n    from torch import nn\nexcept ImportError:\n    pass"),
        ("pycollectives/train/models/mlp.py", "import torch"),
        ("pycollectives/train/datasets/digits.py", "from sklearn.datasets import load_digits"),
        ("pycollectives/partial.py", "import bench.skew"),
        ("bench/a.py", "from pycollectives import _core"),
        ("bench/a.py", "import pycollectives._core"),
        ("bench/a.py", "import pycollectives as pc\npc._core.Engine"),
    ],
)
def test_refused(tmp_path, path, line):
    (violation,) = check_file(tmp_path, path, line + "\n")
    assert violation.startswith(f"{path}:")


def test_line_is_named(tmp_path):
    (violation,) = check_file(tmp_path, "csrc/memory/a.cc", "#pragma once\n\n#include <mpi.h>\n")
    assert violation.startswith("csrc/memory/a.cc:3: <mpi.h>")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("csrc/algorithms/a.cc", '#include "schedule/schedule.h"\n#include "core/types.h"\n#include <vector>'),
        (
            "csrc/engine/a.cc",
            '#include "memory/memory.h"\n#include "algorithms/registry.h"\n#include "engine/engine.h"',
        ),
        ("csrc/transport/mpi_a.cc", '#include <mpi.h>\n#include "transport/mpi_a.h"'),
        ("csrc/bindings/a.cc", '#include <mpi4py/mpi4py.h>\n#include "simulation/simulator.h"'),
        ("pycollectives/policies.py", "from .errors import StallError\nfrom typing import Any\nimport numpy"),
        ("pycollectives/typing.py", "if TYPE_CHECKING:\n    from mpi4py import MPI"),
        ("pycollectives/partial.py", "def f():\n    import torch"),
        ("pycollectives/interop/torch.py", "import torch"),
        ("pycollectives/train/torch_models/cnn.py", "from torch import nn"),
        ("bench/a.py", "import pycollectives as pc\npc.__version__, pc.Solo\nfrom pycollectives import simulation"),
    ],
)
def test_accepted(tmp_path, path, line):
    assert check_file(tmp_path, path, line + "\n") == []
