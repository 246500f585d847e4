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


def test_no_service_uses_another():
    layers = check_layers.cpp_layers(ROOT)
    services = {name for name in layers if name.startswith("services/")} - {"services/common"}
    assert services
    for service in services:
        assert layers[service] & services == {service}


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("csrc/core/a.h", '#include "schedule/schedule.h"'),
        ("csrc/algorithms/a.cc", '#include "memory/memory.h"'),
        ("csrc/memory/a.cc", '#  include  "transport/transport.h"'),
        ("csrc/memory/a.h", '#include "memory/cuda/driver.h"'),
        ("csrc/memory/cuda/a.cuh", '#include "transport/transport.h"'),
        ("csrc/engine/a.cc", '#include "memory/cuda/driver.h"'),
        ("csrc/transport/a.cc", '#include "../engine/engine.h"'),
        ("csrc/engine/a.cc", '#include "services/common/stall.h"'),
        ("csrc/services/a.cc", ""),
        ("csrc/services/common/a.cc", '#include "services/partial_reduce/a.h"'),
        ("csrc/services/partial_reduce/a.cc", '#include "services/partial_allreduce/a.h"'),
        ("csrc/core/a.cc", "\n" * 501),
        ("csrc/engine/a.cc", '#include "engine.h"'),
        ("csrc/engine/a.cc", "#include <mpi.h>"),
        ("csrc/engine/a.cc", '#include "mpi.h"'),
        ("csrc/engine/a.cc", '#include "transport/mpi_transport.h"'),
        ("csrc/engine/mpi_a.cc", "#include <mpi.h>"),
        ("csrc/services/common/a.cc", "#include <pybind11/pybind11.h>"),
        ("csrc/transport/mpi_a.cc", "#include <mpi4py/mpi4py.h>"),
        ("csrc/other/a.cc", ""),
        ("pycollectives/support/errors.py", "from mpi4py import MPI"),
        ("pycollectives/simulation/workload.py", "from ..support import native"),
        ("pycollectives/policies.py", "from .communicator import Communicator"),
        ("pycollectives/policies.py", "from . import _core"),
        ("pycollectives/support/errors.py", "def f():\n    import pycollectives.partial_allreduce.collective"),
        ("pycollectives/new.py", ""),
        ("pycollectives/new/new.py", ""),
        ("pycollectives/train/loop.py", "from ..commands import train"),
        ("pycollectives/communicator.py", "import torch"),
        ("pycollectives/train/loop.py", "try:\n    from torch import nn\nexcept ImportError:\n    pass"),
        ("pycollectives/train/models/mlp.py", "import torch"),
        ("pycollectives/train/datasets/digits.py", "from sklearn.datasets import load_digits"),
        ("pycollectives/communicator.py", "import bench.skew"),
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
        ("csrc/services/partial_reduce/a.cc", '#include "services/common/a.h"\n#include "groups/a.h"'),
        (
            "pycollectives/policies.py",
            "from .support.errors import StallError\nfrom typing import Any\nimport numpy",
        ),
        ("pycollectives/support/typing.py", "if TYPE_CHECKING:\n    from mpi4py import MPI"),
        ("pycollectives/communicator.py", "def f():\n    import torch"),
        ("pycollectives/torch/eager.py", "import torch"),
        ("pycollectives/train/torch_models/cnn.py", "from torch import nn"),
        ("bench/a.py", "import pycollectives as pc\npc.__version__, pc.Solo\nfrom pycollectives import simulation"),
    ],
)
def test_accepted(tmp_path, path, line):
    assert check_file(tmp_path, path, line + "\n") == []


def check_package(root: Path, files: dict[str, str]) -> list[str]:
    """What the checker says of a package of these files."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return [str(violation) for violation in check_layers.check_package(root)]


def test_a_circle_within_a_part_is_refused(tmp_path):
    files = {
        "pycollectives/train/a.py": "from . import b",
        "pycollectives/train/b.py": "def f():\n    from .c import g",
        "pycollectives/train/c.py": "from . import a\n\n\ndef g(): ...",
    }
    (violation,) = check_package(tmp_path, files)
    assert violation.endswith("modules import each other: train.a -> train.b -> train.c -> train.a")


def test_a_name_comes_from_the_module_that_defines_it(tmp_path):
    files = {
        "pycollectives/support/errors.py": "class StallError(Exception): ...",
        "pycollectives/support/deadline.py": "from .errors import StallError",
        "pycollectives/agreement/checking.py": "from ..support.deadline import StallError",
    }
    (violation,) = check_package(tmp_path, files)
    assert violation.startswith("pycollectives/agreement/checking.py:1: support.deadline does not define StallError")


@pytest.mark.parametrize(("modules", "refused"), [(11, 0), (12, 1)])
def test_the_package_keeps_few_modules_at_its_top(tmp_path, monkeypatch, modules, refused):
    names = [f"module_{number}" for number in range(modules)]
    monkeypatch.setattr(check_layers, "PARTS", dict.fromkeys([*names, "__main__", "pycollectives"], ""))
    violations = check_package(tmp_path, {f"pycollectives/{name}.py": "" for name in [*names, "__main__", "__init__"]})
    assert len(violations) == refused, violations
