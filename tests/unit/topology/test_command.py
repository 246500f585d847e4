"""python -m pycollectives topology."""

import shutil
import subprocess

import pytest
from click.testing import CliRunner

from pycollectives import topology
from pycollectives.__main__ import main


def run(*arguments):
    return CliRunner().invoke(main, ["topology", *map(str, arguments)])


def test_what_it_prints():
    done = run("ring-based", "--ranks", 6)
    assert done.exit_code == 0, done.output
    assert (
        done.output
        == """\
Topology ring-based of 6 ranks, 9 edges
  degree             3
  diameter           2
  spectral gap       0.5
  bipartite          yes
  symmetric          yes
  uniform weights    rows and columns sum to 1
  gap of Hop         1.0000
  rho                0.8333
  chi1, chi2         1, 0.8333

Each rank receives from
     0: 1 3 5
     1: 0 2 4
     2: 1 3 5
     3: 0 2 4
     4: 1 3 5
     5: 0 2 4

One row per rank; o: receives from that rank

  0 1 2 3 4 5
0 * o . o . o
1 o * o . o .
2 . o * o . o
3 o . o * o .
4 . o . o * o
5 o . o . o *
"""
    )


@pytest.mark.parametrize("name", topology.NAMES)
@pytest.mark.parametrize("size", [1, 2, 8])
def test_every_name(name, size):
    if (name, size) == ("double-ring", 1):
        pytest.skip("an odd number of ranks")
    done = run(name, "-n", size)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == repr(topology.by_name(name, size))[1:-1]
    assert done.output.count("     0:") == topology.by_name(name, size).period


def test_a_topology_that_changes():
    done = run("one-peer-exponential", "-n", 4)
    assert "degree             1\n" in done.output
    assert "spectral gap       1, over a period\n" in done.output
    assert "In step 1, each rank receives from\n     0: 2\n" in done.output
    assert "chi1" not in done.output
    assert done.output.endswith("0 * . o o\n1 o * . o\n2 o o * .\n3 . o o *\n")


def test_weights():
    assert "uniform weights    rows sum to 1\n" in run("star").output
    assert "metropolis weights rows and columns sum to 1\n" in run("star", "--weights", "metropolis").output
    assert "push-sum weights   columns sum to 1\n" in run("star", "--weights", "push-sum").output
    assert run("star").output != run("star", "--weights", "metropolis").output


def test_no_picture_that_is_wider_than_a_line():
    assert "One row per rank" in run("ring", "-n", 64).output
    assert "One row per rank" not in run("ring", "-n", 65).output


def test_drawings(tmp_path):
    assert run("ring", "-n", 4, "--dot", "-").output == topology.ring(4).dot()
    path = tmp_path / "ring.dot"
    done = run("ring", "-n", 4, "--dot", path)
    assert done.output == run("ring", "-n", 4).output
    assert path.read_text() == topology.ring(4).dot()


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz")
@pytest.mark.parametrize("name", topology.NAMES)
def test_graphviz_reads_the_drawing(name):
    text = topology.by_name(name, 8).dot()
    done = subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("node ") == 8 * topology.by_name(name, 8).period


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rings"], "topology: expected 'ring' or 'ring-based' or"),
        (["hypercube", "-n", "12"], "hypercube: expected a power of two as the number of ranks, got 12"),
        (
            ["exponential", "--weights", "metropolis"],
            "exponential of 8 ranks: expected a symmetric graph for weights 'metropolis', found an edge",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    done = run(*arguments)
    assert done.exit_code == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_help_lists_the_names():
    text = "".join(run("--help").output.split())  # lines are broken at hyphens too
    assert f"NAMEisoneof{','.join(topology.NAMES[:-1])}and{topology.NAMES[-1]}." in text
