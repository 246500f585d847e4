"""Run clang-tidy on the C++ files that have not passed it in their current state.

    python tools/tidy.py [--all] [--jobs N] BUILD_FOLDER

The record of tools/passed.py has a line for each .cc file with a digest of all sources of its verdict: the file, the
headers of csrc that it includes directly or indirectly, .clang-tidy, the compile settings (CMakeLists.txt,
CMakePresets.json) and clang-tidy's version. A file whose digest is recorded is not checked again. --all checks every
file. Each file that passes is recorded, even if others fail.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from passed import RECORD, contents, digest, read, version_of, write

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "csrc"
TESTS = ROOT / "tests" / "cpp"
OF_ALL = (".clang-tidy", "CMakeLists.txt", "CMakePresets.json")
"""The sources of the verdict on every file."""

INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


@cache
def included(path: Path) -> tuple[Path, ...]:
    """Return our files that `path` includes directly: found beside it, in csrc, or in tests/cpp."""
    found = []
    for name in INCLUDE.findall(path.read_bytes()):
        places = [folder / name.decode() for folder in (path.parent, SOURCES, TESTS)]
        there = next((place for place in places if place.is_file()), None)
        if there is None:
            sys.exit(f"{path}: #include {name.decode()!r}: no such file beside it, in {SOURCES} or in {TESTS}")
        found.append(there.resolve())
    return tuple(found)


def closure(path: Path) -> list[Path]:
    """Return `path` and all files that it includes, directly or indirectly, in a fixed order."""
    seen, waiting = {path}, [path]
    while waiting:
        new = set(included(waiting.pop())) - seen
        seen |= new
        waiting += new
    return sorted(seen)


def of_all() -> bytes:
    """Return a digest of the sources of the verdict on every file."""
    version = version_of(("clang-tidy", "--version"))
    if version is None:
        sys.exit("clang-tidy: not found; `make tidy` installs it")
    parts = (b"version " + version, *(contents(ROOT / name) for name in OF_ALL))
    return b"".join(hashlib.sha256(one).digest() for one in parts)


def main(arguments: list[str] | None = None) -> None:
    """Check the files without a record; SystemExit with clang-tidy's status if it finds anything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="with compile_commands.json")
    parser.add_argument("--all", action="store_true", help="check every file")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    common = of_all()
    now = {str(path.relative_to(ROOT)): digest(closure(path), ROOT, common) for path in sorted(SOURCES.rglob("*.cc"))}
    before = {} if options.all else read(ROOT / RECORD)
    chosen = [path for path, value in now.items() if before.get(path) != value]
    print(f"clang-tidy: {len(chosen)} of {len(now)} files", "" if options.all else "have changed since they passed")
    clean = {path: value for path, value in now.items() if path not in chosen}
    try:
        for path in passing(chosen, options.build, options.jobs):
            clean[path] = now[path]
    finally:
        write(ROOT / RECORD, clean, lambda name: name.endswith(".cc"))
    if found := sorted(now.keys() - clean.keys()):
        sys.exit(f"clang-tidy: found something in {', '.join(found)}")


def passing(chosen: list[str], build: Path, jobs: int) -> Iterator[str]:
    """Run clang-tidy on files in parallel; yield files as they pass, and print the findings in others."""
    if not chosen:
        return
    commands = json.loads((build / "compile_commands.json").read_text())
    compiled = {(Path(command["directory"]) / command["file"]).resolve() for command in commands}
    unknown = [path for path in chosen if ROOT / path not in compiled]
    if unknown:  # clang-tidy would skip them silently
        sys.exit(f"{build}: no compile command for {', '.join(unknown)}")
    command = ["clang-tidy", "--quiet", "-p", str(build), "--config-file", str(ROOT / ".clang-tidy")]

    def run(path: str) -> tuple[str, subprocess.CompletedProcess[str]]:
        return path, subprocess.run([*command, str(ROOT / path)], capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(run, path) for path in chosen]
        for number, done in enumerate(as_completed(runs), 1):
            path, outcome = done.result()
            print(f"[{number}/{len(chosen)}] {path}", flush=True)
            if outcome.returncode == 0:
                yield path
            else:
                print(outcome.stdout, outcome.stderr, sep="", flush=True)


if __name__ == "__main__":
    main()
