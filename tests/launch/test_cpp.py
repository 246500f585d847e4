"""Programs without Python, such as examples/cpp, against the library that `make testing` installs for find_package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import environment, launcher, run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cpp"
PROGRAMS = Path(__file__).resolve().parent / "programs"


def built(source, folder):
    """Build the program of a folder, and return the build folder."""
    configure = ["cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={sys.prefix}"]
    configure.append(f"-DMPI_C_COMPILER={Path(sys.executable).with_name('mpicc')}")
    for command in (configure, ["cmake", "--build", folder]):
        outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return folder


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    return built(EXAMPLE, tmp_path_factory.mktemp("cpp")) / "events"


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    """The program of programs/linked.cpp, built as the example is."""
    source = tmp_path_factory.mktemp("linked")
    (source / "linked.cpp").write_text((PROGRAMS / "linked.cpp").read_text())
    text = (EXAMPLE / "CMakeLists.txt").read_text()
    (source / "CMakeLists.txt").write_text(re.sub(r"\bevents\b", "linked", text))
    return built(source, tmp_path_factory.mktemp("build")) / "linked"


@pytest.mark.parametrize(
    ("way", "of_rank_0", "of_rank_1"),
    [
        ("level", "8 .*expected MPI_THREAD_MULTIPLE", "8 .*expected MPI_THREAD_MULTIPLE"),
        ("count", "5 pyc_make_allreduce: arguments differ: .*on rank 1", "5 .*'2 float64 SUM.*on rank 0"),
        ("policy", "1 policy: expected solo, .*K <= 2, got 'quorum:9'", "5 .*refused, policy: expected.*on rank 0"),
        ("forgotten", "0 ", "0 "),
    ],
)
def test_wrong_use_is_an_error_on_all_ranks(linked, way, of_rank_0, of_rank_1):
    outcome = run([*launcher(), "-n", "2", str(linked), way], limit=60, env=environment())
    assert (outcome.status, outcome.err) == (0, "")
    lines = sorted(outcome.out.splitlines())
    assert re.match(rf"0: {of_rank_0}", lines[0]), outcome.out
    assert re.match(rf"1: {of_rank_1}", lines[1]), outcome.out


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
