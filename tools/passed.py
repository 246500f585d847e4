"""Run a check unless it has passed with the same sources, and keep a record of passed checks.

    python tools/passed.py [--again] NAME COMMAND...   run COMMAND unless NAME has passed with the current sources
    python tools/passed.py --stale NAME...             status 0 if one of them has not passed, 1 if all have

The record is .passed, with a line per check: a digest of all sources of its verdict, and its name. Only a successful
COMMAND changes the record; commit it with the change. CHECKS lists the sources of each check. The record also has a
line for each C++ file, from tools/tidy.py.

Digests, unlike a commit, stay the same after a rebase and in a shallow clone, and include uncommitted changes.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parent.parent
RECORD = ".passed"
HEADER = "# Written by tools/passed.py and tools/tidy.py: which checks have passed, with a digest of their sources.\n"


@dataclass(frozen=True)
class Check:
    """The sources of a check's verdict: files, all files of folders, and the version of a tool."""

    sources: tuple[str, ...]
    version: tuple[str, ...]


INSTRUMENTED = ("csrc", "CMakeLists.txt", "CMakePresets.json", "tests/cpp", "tests/plan", "tests/sanitize.sh")
COMPILER = ("g++", "-dumpversion")
CHECKS = {
    "models": Check(("tests/model",), ("spin", "-V")),
    "asan": Check(INSTRUMENTED, COMPILER),
    "tsan": Check((*INSTRUMENTED, "tests/tsan-suppressions.txt"), COMPILER),
}
HASH = re.compile(rb"(?m)(?P<kept>)(?:^|(?<=\s))#.*")
"""A comment that begins with "#" at the start of a word."""

C_PLUS_PLUS = re.compile(
    rb"""(?xs) (?P<kept> R"(?P<end>[^\s()]*)\(.*?\)(?P=end)" | "(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'
                       | //[^\n]*NOLINT[^\n]* )
             | //[^\n]* | /\*.*?\*/""",
)
"""A comment, or text that is kept although it may look like one: a string, a character, a clang-tidy instruction."""

COMMENTS = {
    "CMakeLists.txt": HASH, "CMakePresets.json": HASH, ".clang-tidy": HASH,
    ".cc": C_PLUS_PLUS, ".h": C_PLUS_PLUS, ".cu": C_PLUS_PLUS, ".cuh": C_PLUS_PLUS, ".inc": C_PLUS_PLUS,
}  # fmt: skip
"""The form of comments in files of that name or suffix. Comments do not enter the digest."""


def contents(path: Path) -> bytes:
    """Return the nonempty lines of a file; without its comments, if COMMENTS has their form."""
    text = path.read_bytes()
    comment = COMMENTS.get(path.name) or COMMENTS.get(path.suffix)
    if comment is None:
        return text
    lines = (line.rstrip() for line in comment.sub(lambda found: found["kept"] or b"", text).splitlines())
    return b"\n".join(line for line in lines if line)


def digest(files: Iterable[Path], root: Path, common: bytes = b"") -> str:
    """Return a digest of the names and contents of files, and of `common`."""
    whole = hashlib.sha256(common)
    for one in files:
        whole.update(f"{one.relative_to(root)}\0".encode())
        whole.update(hashlib.sha256(contents(one)).digest())
    return whole.hexdigest()[:32]


def version_of(command: tuple[str, ...]) -> bytes | None:
    """Return the version that a tool prints; None if the tool is missing."""
    if shutil.which(command[0]) is None:
        return None
    told = subprocess.run(command, capture_output=True, check=True).stdout
    version = re.search(rb"\d+(\.\d+)*", told)
    if version is None:
        sys.exit(f"{' '.join(command)}: expected a version, got {told!r}")
    return version[0]


def read(record: Path) -> dict[str, str]:
    """Return the digest of each check that has passed, by name; empty if there is no record."""
    if not record.exists():
        return {}
    lines = [line.split() for line in record.read_text().splitlines() if not line.startswith("#")]
    return {name: value for value, name in lines}


def write(record: Path, passed: dict[str, str], replaced: Callable[[str], bool]) -> None:
    """Write passed checks to the record, in place of the entries whose name is `replaced`."""
    kept = {name: value for name, value in read(record).items() if not replaced(name)}
    text = HEADER + "".join(f"{value} {name}\n" for name, value in sorted({**kept, **passed}.items()))
    if not record.exists() or record.read_text() != text:
        record.write_text(text)


def current(check: Check, root: Path) -> str | None:
    """Return the digest of a check's current sources; None if its tool is missing."""
    version = version_of(check.version)
    if version is None:
        return None
    files: set[Path] = set()
    for source in check.sources:
        path = root / source
        found = {one for one in path.rglob("*") if one.is_file()} if path.is_dir() else {path}
        files |= {one for one in found if "__pycache__" not in one.parts}
    return digest(sorted(files), root, version)


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Run the command line; return the status of the command, or 0 if it need not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="run it in any case")
    parser.add_argument("--stale", action="store_true", help="run nothing, and report by the status")
    parser.add_argument("name", choices=CHECKS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    record = root / RECORD
    if options.stale:
        now = {name: current(CHECKS[name], root) for name in (options.name, *options.command)}
        return int(all(value is not None and read(record).get(name) == value for name, value in now.items()))
    now = current(CHECKS[options.name], root)
    if not options.again and now is not None and read(record).get(options.name) == now:
        print(f"{options.name}: passed before, with the same sources", flush=True)
        return 0
    status = subprocess.run(options.command, check=False).returncode
    if status == 0 and now is not None:
        write(record, {options.name: now}, lambda name: name == options.name)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
