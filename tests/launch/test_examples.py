"""The programs in examples/ run, and what they print is right; the how-to pages show what is in them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from killer import WITH_FAULT_TOLERANCE
from launcher import environment, launcher, run
from nightly import nightly_unless

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
HOWTO = ROOT / "docs" / "howto"
NUMBER = r"(-?[\d.]+(?:e[-+]\d+)?)"

several = pytest.mark.parametrize("ranks", nightly_unless(lambda ranks: ranks == 3, [2, 3, 4]))
a_pair = pytest.mark.parametrize("ranks", nightly_unless(lambda ranks: ranks == 2, [2, 3, 4]))  # takes long
slow_start = pytest.mark.timeout(240)  # each rank imports PyTorch, which takes long where ranks share a core


def output(ranks, program, *arguments):
    """Return what a program prints, which ends well and says nothing on stderr."""
    command = [*launcher(), "-n", str(ranks), sys.executable, str(program), *map(str, arguments)]
    outcome = run(command, limit=90, env=environment(PYC_STALL_WARNING="10"))
    assert (outcome.status, outcome.err) == (0, "")
    return outcome.out


def numbers(pattern, text):
    """Return the numbers in the one place where a pattern matches; N stands for a number."""
    match = re.search(pattern.replace("N", NUMBER), text)
    assert match, f"{pattern!r} is not in:\n{text}"
    return [float(number) for number in match.groups()]


@several
def test_linear_regression(ranks):
    said = output(ranks, EXAMPLES / "linear_regression.py")
    assert f"{ranks} ranks, 100 steps each" in said
    error, spread = numbers("largest error of a rank N, largest difference between ranks N", said)
    assert error < 1e-3, said
    assert spread < 1e-12, said


@several
def test_solver(ranks):
    """The answer is 6: 1 / (1 + 6 / 2) of the particles pass. 0.25 is 5 standard deviations on 2 ranks."""
    said = output(ranks, EXAMPLES / "solver.py")
    thickness, spread = numbers(f"{ranks} ranks: thickness N, ranks differ by N", said)
    assert thickness == pytest.approx(6, abs=0.25), said
    assert spread < 1e-12, said


@slow_start
@a_pair
def test_ddp_style(ranks, tmp_path):
    torch = pytest.importorskip("torch")
    said = output(ranks, EXAMPLES / "ddp_style.py", "--checkpoint", tmp_path / "model.pt")
    (accuracy,) = numbers(f"{ranks} ranks, 6 epochs: accuracy N, same on all ranks: True", said)
    assert accuracy > 0.93, said
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    assert state["epoch"] == 5
    assert state["optimizer"]["param_groups"][0]["lr"] == 0.25  # it has been halved once
    assert [tuple(weights.shape) for weights in state["model"].values()] == [(32, 2), (32,), (2, 32), (2,)]


@slow_start
def test_processes_that_load_data_may_be_forked():
    pytest.importorskip("torch")
    said = output(2, EXAMPLES / "ddp_style.py", "--epochs", 1, "--workers", 1)
    assert "same on all ranks: True" in said


@several
def test_group_averaging(ranks):
    """No rank sees all features: without averaging, the error of each is at least 1."""
    said = output(ranks, EXAMPLES / "group_averaging.py")
    error, others = numbers("largest error of a rank N; a rank was in groups with N others", said)
    assert error < 0.1, said
    assert others == ranks - 1, said


@pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")
@pytest.mark.parametrize(
    ("example", "says"),
    [
        ("after_a_death.py", r"rank 1 died.*\n3 ranks continue from step \d+$"),
        ("continue_after_a_death.py", r"^step \d+: lost \(1,\), members \(0, 2, 3\)$"),
        ("replace_a_dead_rank.py", r"^step \d+: lost \(1,\), members \(0, 1, 2, 3\)$"),
    ],
)
def test_training_continues_after_a_death(example, says):
    ranks = 5 if example.startswith("replace") else 4
    command = [*launcher(), *WITH_FAULT_TOLERANCE, "-n", str(ranks), sys.executable, EXAMPLES / example]
    outcome = run([str(word) for word in command], limit=90, env=environment(PYC_STALL_WARNING="10"))
    assert outcome.err == ""
    assert re.search(says, outcome.out, re.MULTILINE)
    (error,) = numbers("largest error of a weight: N", outcome.out)
    assert error < 0.01


@several
def test_resumed_is_the_same_as_uninterrupted(ranks, tmp_path):
    program = EXAMPLES / "checkpoint_resume.py"
    stopped = output(ranks, program, "--until", 30, "--file", tmp_path / "a.npz")
    resumed = output(ranks, program, "--file", tmp_path / "a.npz")
    uninterrupted = output(ranks, program, "--file", tmp_path / "b.npz")
    assert f"{30 * ranks} gradients" in stopped
    assert resumed.startswith("steps 30 to 60: weights [ 1. -2.  3.]"), resumed
    assert uninterrupted.startswith("steps 0 to 60:"), uninterrupted
    assert resumed.split(":", 1)[1] == uninterrupted.split(":", 1)[1]
    assert stopped.split("digest")[1] != resumed.split("digest")[1]


@several
def test_no_gradient_is_lost_by_a_stop(ranks, tmp_path):
    """Under a quorum too, where runs differ."""
    program = EXAMPLES / "checkpoint_resume.py"
    for until in (25, 60):
        said = output(ranks, program, "--policy", "quorum", "--until", until, "--file", tmp_path / "a.npz")
        assert f" {until * ranks} gradients" in said, said


def test_a_checkpoint_of_another_number_of_ranks_is_refused(tmp_path):
    program = EXAMPLES / "checkpoint_resume.py"
    output(2, program, "--until", 10, "--file", tmp_path / "a.npz")
    command = [*launcher(), "-n", "4", sys.executable, str(program), "--file", str(tmp_path / "a.npz")]
    outcome = run(command, limit=60)
    assert outcome.status == 1
    assert "was written by 2 ranks, not 4" in outcome.err
    assert "Traceback" not in outcome.err


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (HOWTO / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("page", "example"), [("ddp.md", "ddp_style.py"), ("solver.md", "solver.py")])
def test_the_changes_on_a_page_lead_to_the_example(page, example):
    """Each line that is added, or stays, is in the example: in this order between two lines of `@@`."""
    lines = (EXAMPLES / example).read_text().splitlines()
    (changes,) = blocks(page, "diff")
    place = 0
    for line in changes.splitlines():
        if line.startswith("@@"):
            place = 0
        elif not line.startswith("-"):
            assert line[1:] in lines[place:], line
            place = lines.index(line[1:], place) + 1


@a_pair
def test_the_program_of_the_page_on_solvers(ranks, tmp_path):
    program, _, _ = blocks("solver.md", "python")
    (tmp_path / "program.py").write_text(program)
    said = output(ranks, tmp_path / "program.py")
    found = {tuple(numbers(f"rank {rank}: residual N after N sweeps", said)) for rank in range(ranks)}
    assert len(found) == 1, said
    assert next(iter(found))[0] <= 1e-10, said


@several
def test_the_program_of_that_page_with_data_of_each_rank(ranks, tmp_path):
    """The answer is that of all measurements at once, whatever rank is slow."""
    _, program, _ = blocks("solver.md", "python")
    slow = program.replace("            mine =", "            time.sleep(0.002 * (comm.rank == 1))\n            mine =")
    assert slow != program
    data = [np.random.default_rng(rank) for rank in range(ranks)]
    features = [rng.normal(size=(100, 3)) for rng in data]
    values = [one @ [1.0, -2.0, 3.0] + rng.normal(size=100) for one, rng in zip(features, data, strict=True)]
    answer = np.linalg.lstsq(np.vstack(features), np.concatenate(values), rcond=None)[0]
    (tmp_path / "program.py").write_text("import time\n" + slow)
    said = output(ranks, tmp_path / "program.py")
    for rank in range(ranks):
        found = re.search(rf"rank {rank}: gradient \S+, weights \[(.*)\]", said)
        assert found, said
        assert np.abs(np.array(found[1].split(), float) - answer).max() < 2e-6, (said, answer)


@several
def test_the_program_of_that_page_whose_ranks_take_pieces_of_work(ranks, tmp_path):
    """Rank 1 is slow, and takes fewer; together they count each piece once."""
    _, _, program = blocks("solver.md", "python")
    slow = program.replace("        points =", "        time.sleep(0.005 * (comm.rank == 1))\n        points =")
    assert slow != program
    (tmp_path / "program.py").write_text("import time\n" + slow)
    said = output(ranks, tmp_path / "program.py")
    found = [numbers(f"rank {rank}: N from N points, N steps", said) for rank in range(ranks)]
    assert {tuple(each[:2]) for each in found} == {tuple(found[0][:2])}, said
    assert found[0][1] == 200_000
    assert abs(found[0][0] - np.pi) < 0.05
    steps = [each[2] for each in found]
    assert sum(steps) == 200
    assert steps[1] == min(steps)


def test_the_program_of_the_page_on_learning_rates(tmp_path):
    (tmp_path / "program.py").write_text("\n".join(blocks("learning-rate.md", "python")))
    outcome = run([sys.executable, "-W", "error", str(tmp_path / "program.py")], limit=60)
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")


@slow_start
@a_pair
def test_the_program_of_the_page_on_checkpoints(ranks, tmp_path):
    pytest.importorskip("torch")
    (program,) = blocks("checkpoint.md", "python")
    (tmp_path / "program.py").write_text(program)
    for first in (0, 3):
        said = output(ranks, tmp_path / "program.py", tmp_path / "checkpoint.pt")
        (error,) = numbers(f"epochs {first} to {first + 3}: largest error of a weight N", said)
    assert error < 1e-2, said
