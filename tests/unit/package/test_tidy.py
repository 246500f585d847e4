"""Which files tools/tidy.py checks: every one of which anything has changed since it passed, and no other."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"
FILES = {
    "csrc/core/low.h": "int low();",
    "csrc/core/low.cc": '#include "low.h"\n',
    "csrc/engine/middle.h": '#include "core/low.h"\n',
    "csrc/engine/high.cc": '  #  include "engine/middle.h"\n#include <vector>\n',
    "csrc/engine/alone.cc": "int nothing;\n",
    ".clang-tidy": "Checks: '*'",
    "CMakeLists.txt": "",
    "CMakePresets.json": "",
}
EVERY = {"csrc/core/low.cc", "csrc/engine/high.cc", "csrc/engine/alone.cc"}


class Tree:
    """A repository in which a fake clang-tidy writes down what it is given, and finds fault with `bad` in it."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root = root
        for name, text in FILES.items():
            self.write(name, text)
        commands = [{"directory": str(root), "command": "", "file": name} for name in EVERY]
        self.write("build/compile_commands.json", json.dumps(commands))
        version = 'if [ "$1" = --version ]; then echo "  LLVM version $(cat "$ROOT/version")"; exec date +%N; fi'
        self.script("clang-tidy", f'{version}; shift $(($# - 1)); echo "$1" >> "$ROOT/given"; ! grep -q bad "$1"')
        self.write("version", "1.2")
        monkeypatch.setenv("ROOT", str(root))
        monkeypatch.setenv("PATH", str(root / "bin"), prepend=":")
        monkeypatch.syspath_prepend(str(TOOLS))
        self.tool = importlib.import_module("tidy")
        for name, value in {"ROOT": root, "SOURCES": root / "csrc"}.items():
            monkeypatch.setattr(self.tool, name, value)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def script(self, name: str, body: str) -> None:
        self.write(f"bin/{name}", f"#!/bin/sh\n{body}\n")
        (self.root / "bin" / name).chmod(0o755)

    def checked(self, *options: str) -> set[str]:
        """Run the tool; return the files that clang-tidy was given."""
        given = self.root / "given"
        given.unlink(missing_ok=True)
        self.tool.included.cache_clear()
        self.tool.main([*options, str(self.root / "build")])
        paths = given.read_text().splitlines() if given.exists() else []
        return {name for name in EVERY if str(self.root / name) in paths}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    return Tree(tmp_path, monkeypatch)


def test_everything_is_checked_once(tree):
    assert tree.checked() == EVERY
    assert tree.checked() == set()
    assert tree.checked("--all") == EVERY


@pytest.mark.parametrize(
    ("changed", "text", "expected"),
    [
        ("csrc/core/low.h", "long low();", {"csrc/core/low.cc", "csrc/engine/high.cc"}),
        ("csrc/engine/middle.h", "int middle();", {"csrc/engine/high.cc"}),
        ("csrc/engine/alone.cc", "int something;\n", {"csrc/engine/alone.cc"}),
        ("csrc/engine/alone.cc", "int nothing;  // at all\n", set()),
        ("csrc/engine/alone.cc", "int nothing;  // NOLINT\n", {"csrc/engine/alone.cc"}),
        (".clang-tidy", "Checks: 'bugprone-*'", EVERY),
        ("CMakeLists.txt", "add_compile_options(-O0)", EVERY),
        ("CMakeLists.txt", "# a comment\n\n", set()),
        ("version", "1.3", EVERY),
    ],
)
def test_what_depends_on_a_change_is_checked_again(tree, changed, text, expected):
    tree.checked()
    tree.write(changed, text)
    assert tree.checked() == expected
    assert tree.checked() == set()


def test_what_clang_tidy_finds_fault_with_has_not_passed(tree):
    tree.checked()
    tree.write("csrc/engine/alone.cc", "int bad;\n")
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            tree.checked()
        assert end.value.code == "clang-tidy: found something in csrc/engine/alone.cc"
    tree.write("csrc/engine/alone.cc", FILES["csrc/engine/alone.cc"])
    assert tree.checked() == {"csrc/engine/alone.cc"}


def test_what_passes_is_recorded_though_other_files_do_not(tree):
    tree.write("csrc/engine/alone.cc", "int bad;\n")
    with pytest.raises(SystemExit):
        tree.checked()
    tree.write("csrc/engine/alone.cc", "int good;\n")
    assert tree.checked() == {"csrc/engine/alone.cc"}


def test_a_file_that_is_not_compiled_is_an_error(tree):
    """clang-tidy itself would leave it out without a word."""
    tree.write("csrc/engine/new.cc", "")
    with pytest.raises(SystemExit, match=r"no compile command for csrc/engine/new\.cc"):
        tree.checked()


def test_a_header_that_is_not_there_is_an_error(tree):
    tree.write("csrc/engine/alone.cc", '#include "engine/gone.h"\n')
    with pytest.raises(SystemExit, match=r"'engine/gone\.h': no such file"):
        tree.checked()


def test_the_lines_of_other_checks_stay(tree):
    tree.write(".passed", "0123 models\n4567 csrc/core/gone.cc\n")
    tree.checked()
    lines = [line.split() for line in (tree.root / ".passed").read_text().splitlines() if not line.startswith("#")]
    assert {name for _, name in lines} == {"models", *EVERY}
    assert ["0123", "models"] in lines
