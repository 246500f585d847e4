"""The program of examples/cpp, without Python, against the library that `make testing` installs for find_package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launcher import environment, launcher, run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cpp"


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpp")
    configure = ["cmake", "-S", EXAMPLE, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={sys.prefix}"]
    configure.append(f"-DMPI_C_COMPILER={Path(sys.executable).with_name('mpicc')}")
    for command in (configure, ["cmake", "--build", folder]):
        outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return folder / "events"


@pytest.mark.parametrize("ranks", [1, 3])
def test_no_event_is_lost(events, ranks):
    outcome = run([*launcher(), "-n", str(ranks), str(events)], limit=60, env=environment(PYC_STALL_WARNING="10"))
    assert (outcome.status, outcome.err) == (0, "")
    total = 20 * ranks * (ranks + 1) // 2
    assert outcome.out == f"{ranks} ranks: {total} events, mean of all ranks {total}.0\n"


def test_it_is_linked_to_no_python(events):
    linked = subprocess.run(["ldd", events], capture_output=True, text=True, check=True).stdout
    assert "libmpi" in linked
    assert "python" not in linked
