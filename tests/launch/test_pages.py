"""The programs that pages of the documentation begin with, on several ranks."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher import environment, launcher, mpirun
from nightly import nightly_unless

ROOT = Path(__file__).resolve().parents[2]

several = pytest.mark.parametrize("ranks", nightly_unless(lambda ranks: ranks == 3, [2, 3, 4]))


def programs(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@several
@pytest.mark.parametrize("page", ["README.md", "docs/between-steps.md", "docs/torch.md"])
def test_the_program_of_a_page(page, ranks, tmp_path):
    if page == "docs/torch.md":
        pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(programs(page)[0])
    outcome = mpirun(ranks, str(tmp_path / "program.py"), limit=60, PYC_STALL_WARNING="10")
    assert (outcome.status, outcome.err) == (0, "")
    if page == "README.md":
        total = f"{10 * ranks}."
        assert outcome.out.count(f"[{total} {total} {total} {total}]") == ranks


@several
def test_the_first_training_loop_of_the_tutorial(ranks, tmp_path):
    """All ranks end with the same weights, near (1, 2, 3), of which each rank has samples with a deviation of 1.

    Batches of 10 and a rate of 0.2 leave noise of about 0.1, and the start of zero weights 0.8 ** 20 of the way.
    """
    blocks = programs("docs/tutorial.md")
    (loop,) = (block for block in blocks if block.startswith("weights = np.zeros(3)"))
    end = "ar.flush(timeout=30.0)\nar.close()\ncomm.close()\n"
    assert end in blocks
    (tmp_path / "program.py").write_text(blocks[0] + loop + end)
    outcome = mpirun(ranks, str(tmp_path / "program.py"), limit=60, PYC_STALL_WARNING="10")
    assert (outcome.status, outcome.err) == (0, "")
    weights = [[float(number) for number in line.strip("[]").split()] for line in outcome.out.splitlines()]
    assert len(weights) == ranks
    for each in weights:
        assert each == pytest.approx(weights[0], abs=1e-6)
        assert each == pytest.approx([1.0, 2.0, 3.0], abs=0.4)


@pytest.mark.parametrize("ranks", nightly_unless(lambda ranks: ranks == 3, [1, 3, 4]))
def test_the_programs_of_hop(ranks, tmp_path):
    regression, gap, queues = programs("docs/hop.md")
    for name, program in (("regression", regression), ("gap", gap)):
        (tmp_path / f"{name}.py").write_text(program)
        outcome = mpirun(ranks, str(tmp_path / f"{name}.py"), limit=60, PYC_STALL_WARNING="10")
        assert (outcome.status, outcome.err) == (0, "")
        assert outcome.out == ("[1. 2. 3.]\n" if name == "regression" else "")
    (tmp_path / "queues.py").write_text(queues)
    outcome = mpirun(2, str(tmp_path / "queues.py"), limit=60, PYC_STALL_WARNING="10")
    assert (outcome.status, outcome.err, outcome.out) == (0, "", "[0.5 0.5 0.5]\n" * 2)


@several
def test_the_programs_with_a_parameter_server(ranks, tmp_path):
    said = {}
    names = ("regression", "serving", "elastic", "function")
    for name, program in zip(names, programs("docs/parameter-server.md"), strict=True):
        (tmp_path / f"{name}.py").write_text(program)
        outcome = mpirun(ranks, str(tmp_path / f"{name}.py"), limit=60, PYC_STALL_WARNING="10")
        assert outcome.status == 0  # on a busy machine a worker may be taken out, which is said
        said[name] = outcome.out
    ones = "[1. 1. 1.]\n"
    served = ones * (ranks - 1)
    assert said == {"regression": "[1. 2. 3.]\n", "serving": served, "elastic": ones * ranks, "function": served}


LOOKS_AT_THE_MODEL = """
models = MPI.COMM_WORLD.allgather(w.tolist())
print(f"rank {comm.rank}: {all(m == models[0] for m in models)} {0 < min(w) <= max(w) < comm.size - 1}")
"""


@pytest.mark.parametrize("ranks", nightly_unless(lambda ranks: ranks == 4, [2, 4]))  # powers of two, for one-peer
@pytest.mark.parametrize(
    "program",
    [program for program in programs("docs/neighbor-averaging.md") if "import" in program],
    ids=["ad-psgd", "d-psgd", "one-peer", "sgp"],
)
def test_the_programs_with_neighbors_end_with_one_model(program, ranks, tmp_path):
    """Each rank has data of its own: 0, 1, 2, ..., and `w` at the end is between them, the same on all ranks."""
    (tmp_path / "program.py").write_text(program + LOOKS_AT_THE_MODEL)
    outcome = mpirun(ranks, str(tmp_path / "program.py"), limit=60, PYC_STALL_WARNING="10")
    assert (outcome.status, outcome.err) == (0, "")
    assert [outcome.said(rank) for rank in range(ranks)] == [["True True"]] * ranks


@pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")
def test_ranks_that_are_killed_by_hand():
    """The commands of the page, as in four terminals; once more, which ends the job, for the last rank."""
    section = (ROOT / "docs/howto/after-a-death.md").read_text().partition("\n## Kill a rank yourself\n")[2]
    start, kill, shown = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    folder = Path(sys.executable).parent
    job = subprocess.Popen(
        ["timeout", "--kill-after=5", "60", *shlex.split(start.replace("\\\n", " "))],
        cwd=ROOT,
        env=environment(PATH=f"{folder}:/usr/bin:/bin"),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        lines = iter(job.stdout.readline, "")
        for _ in range(4):
            assert re.fullmatch(r"rank \d: process \d+\n", next(lines))
        for line in [*shown.splitlines(), ""]:
            time.sleep(0.3)  # a death while the collective is made is not on the page
            # No job of others on this machine: the ranks are in the session of their launcher.
            subprocess.run([*shlex.split(kill), "--session", str(job.pid)], check=True, timeout=20)
            if line:
                assert next(lines).split(":")[1] == f"{line.split(':')[1]}\n"
        assert next(lines, None) is None
        job.wait(timeout=60)
    finally:
        job.terminate()
