"""tools/passed.py runs a check if its sources have changed since it passed, and keeps what has passed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"


class Tree:
    """Two checks in a folder of their own, and a command that counts how often it runs."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(TOOLS))
        self.tool = importlib.import_module("passed")
        self.root = root
        version = (sys.executable, "-c", f"print(open({str(root / 'version')!r}).read())")
        checks = {
            "one": self.tool.Check(("folder", "CMakeLists.txt"), version),
            "other": self.tool.Check(("other",), version),
            "toolless": self.tool.Check(("other",), ("no-such-tool",)),
        }
        monkeypatch.setattr(self.tool, "CHECKS", checks)
        for name in ("folder/deep/a.txt", "CMakeLists.txt", "other"):
            self.write(name, "first")
        self.write("version", "Tool 1.2, built on a Friday")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def ran(self, *options: str, status: int = 0) -> bool:
        """Run the tool with a command that ends with `status`; whether the command ran."""
        ran = self.root / "ran"
        ran.unlink(missing_ok=True)
        program = f"open({str(ran)!r}, 'w'); raise SystemExit({status})"
        assert self.tool.main([*options, sys.executable, "-c", program], self.root) == (status if ran.exists() else 0)
        return ran.exists()

    def stale(self, *names: str) -> bool:
        return self.tool.main(["--stale", *names], self.root) == 0


@pytest.fixture
def tree(tmp_path, monkeypatch):
    return Tree(tmp_path, monkeypatch)


def test_a_check_runs_once(tree):
    assert tree.stale("one")
    assert tree.ran("one")
    assert not tree.stale("one")
    assert not tree.ran("one")
    assert tree.stale("one", "other")
    assert tree.ran("--again", "one")
    assert tree.ran("other")
    assert not tree.stale("one", "other")


@pytest.mark.parametrize(
    ("name", "text", "again"),
    [
        ("folder/deep/a.txt", "second", True),
        ("folder/new.txt", "", True),
        ("version", "Tool 1.3", True),
        ("version", "Tool 1.2, built on a Saturday", False),
        ("CMakeLists.txt", "second", True),
        ("CMakeLists.txt", "first  # a comment\n\n", False),
        ("folder/__pycache__/a.pyc", "", False),
        ("other", "second", False),
    ],
)
def test_it_runs_again_if_its_sources_or_its_tool_change(tree, name, text, again):
    tree.ran("one")
    tree.write(name, text)
    assert tree.stale("one") == again
    assert tree.ran("one") == again


CODE = b"""\
/* The first
   comment. */
int a = 1'000;  // it's one
const char* b = "// text \\" // text";  // "a comment"

char c = '"';  // a comment
const char* d = R"end(// text
)" // text)end";  // a comment
int e;  // NOLINT(something): why
"""
WITHOUT = b"""\
int a = 1'000;
const char* b = "// text \\" // text";
char c = '"';
const char* d = R"end(// text
)" // text)end";
int e;  // NOLINT(something): why"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.cc", CODE, WITHOUT),
        ("a.h", CODE, WITHOUT),
        ("a.txt", CODE, CODE),
        ("CMakeLists.txt", b"# all\na(b#c)  # d\n\n", b"a(b#c)"),
    ],
)
def test_comments_are_no_change(tree, name, text, expected):
    (tree.root / name).write_bytes(text)
    assert tree.tool.contents(tree.root / name) == expected


def test_a_file_that_is_gone_is_a_change(tree):
    tree.write("folder/b.txt", "")
    tree.ran("one")
    (tree.root / "folder" / "b.txt").unlink()
    assert tree.ran("one")


def test_only_a_run_that_succeeds_is_recorded(tree):
    tree.ran("other")
    before = (tree.root / ".passed").read_text()
    assert tree.ran("one", status=3)
    assert (tree.root / ".passed").read_text() == before
    assert tree.ran("one")
    tree.write("other", "second")
    tree.ran("other", status=1)
    tree.write("other", "first")
    assert not tree.ran("other"), "it has passed with these sources"


def test_without_its_tool_nothing_is_recorded(tree):
    """The tests of such a check may all be skipped."""
    for _ in range(2):
        assert tree.ran("toolless")
        assert tree.stale("toolless")
    assert not (tree.root / ".passed").exists()


def test_the_sources_of_all_checks_are_there(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    tool = importlib.import_module("passed")
    for check in tool.CHECKS.values():
        assert not [name for name in check.sources if not (TOOLS.parent / name).exists()]
