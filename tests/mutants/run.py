"""Breaks the library in one line at a time, and sees that tests notice.

    make mutants                        # all of them
    make mutants ONLY="lost reply"      # those with these words in what they break
    make mutants ONLY=services/hop      # or in the name of the file

A mutant (neighbor_averaging.py, hop.py, ..., cuda.py) is a text of one file and what replaces it. Each
is built in a copy of the tree, in build/mutants, and is *killed* if one of its tests fails; a hang counts. A mutant
that survives, or whose text is not there exactly once, fails the run. The original has to pass first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import cuda
import cuda_collectives
import hop
import neighbor_averaging
import parameter_server
import parameter_server_service

if TYPE_CHECKING:
    from mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "mutants"
BUILD = TREE / "build"
MUTANTS = [
    *neighbor_averaging.MUTANTS,
    *hop.MUTANTS,
    *parameter_server.MUTANTS,
    *parameter_server_service.MUTANTS,
    *cuda.MUTANTS,
    *cuda_collectives.MUTANTS,
]
RANKS = 3
"""Of tests in tests/mpi."""
SECONDS = 150
"""That the tests of a mutant may take: those of the original take a third of it."""


def main() -> int:
    """Run what is asked for; the exit code is the number of mutants that survive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="", help="words of mutants, or of files (default: all)")
    chosen = [m for m in MUTANTS if parser.parse_args().only in f"{m.file}: {m.breaks}"]
    if not chosen:
        parser.error("no mutant has these words")
    copy_tree()
    options = ["-DPYC_UNITY=OFF", "-DPYC_TESTING=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    run(["cmake", "--preset=release", "-B", BUILD, *options])
    build()
    for tests in sorted({m.tests for m in chosen}):
        if failed := what_fails(tests):
            sys.exit(f"The original fails: {failed}")
    survivors = [m for m in chosen if not is_killed(m)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return len(survivors)


def copy_tree() -> None:
    """Bring the copy to what git knows of the tree, with changes that are not committed."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    for name in filter(None, names):
        source, target = ROOT / name, TREE / name
        if source.is_file() and not (target.exists() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)  # with the time of now, so that it is compiled
    (TREE / "pycollectives" / "_version.py").write_text('version = "mutant"\ncommit = "unknown"\n')


def is_killed(mutant: Mutant) -> bool:
    """Build one, run its tests, and put the original back."""
    path = TREE / mutant.file
    original = path.read_text()
    if original.count(mutant.old) != 1:
        sys.exit(f"{mutant.breaks}: {mutant.file} has its text {original.count(mutant.old)} times, not once")
    begin = time.monotonic()
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        build()
        failed = what_fails(mutant.tests)
    finally:
        path.write_text(original)
        build()
    verdict = f"killed by {failed}" if failed else "SURVIVES"
    print(f"{mutant.breaks:60} {verdict} ({time.monotonic() - begin:.0f} s)", flush=True)
    return bool(failed)


def build() -> None:
    """Compile what has changed, into the copy's package."""
    run(["cmake", "--build", BUILD])
    for module in BUILD.glob("_*.so"):  # cmake --install takes one that was built within two seconds for the same
        shutil.copy(module, TREE / "pycollectives")


def what_fails(tests: tuple[str, ...]) -> str:
    """Return the first test that fails or hangs; an empty text if all pass."""
    command = ["pytest", "--quiet", "--exitfirst", "--no-header", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(TREE), "PYC_CASES": "200"}
    if tests[0].startswith("tests/mpi/"):
        command = [str(ROOT / "tools" / "mpirun"), "-n", str(RANKS), *command, "--with-mpi", "--timeout=60"]
        environment |= {"PYC_TEST_RANKS": str(RANKS), "PYC_CASES": "80"}
    try:
        done = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "a hang"
    if done.returncode == 0:
        return ""
    failed = [line.split(" ")[1] for line in done.stdout.split("\n") if line.startswith("FAILED")]
    return failed[0].rpartition("/")[2] if failed else f"a crash or a hang, status {done.returncode}"


def run(command: list[object]) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run([str(word) for word in command], cwd=TREE, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-4000:] + done.stderr[-4000:])


if __name__ == "__main__":
    sys.exit(main())
