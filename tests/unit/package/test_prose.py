"""The check of prose: finds turns of phrase in pages, comments and strings; one that is more frequent is an error."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

spec = importlib.util.spec_from_file_location("check_prose", ROOT / "tools" / "check_prose.py")
check_prose = importlib.util.module_from_spec(spec)
sys.modules["check_prose"] = check_prose
spec.loader.exec_module(check_prose)

PAGE = """# A page

The others go on. `they go on` and
```
they go on
```
<!-- begin table -->
they go on
<!-- end table -->
"""
PYTHON = '''"""Goes on."""
go_on = "ranks go on"  # nobody waits
goes = f"it goes on {go_on}"
'''
CPP = """// Nobody waits.
void go_on();  // they go on
const char* text = "ranks go on"; /* go on */
"""


@pytest.fixture
def tree(tmp_path):
    for path, text in {"README.md": PAGE, "pycollectives/a.py": PYTHON, "csrc/a.cc": CPP}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "tools").mkdir()
    return tmp_path


FOUND = check_prose.found_in


def test_prose_is_read_and_code_is_not(tree):
    found = {
        (tic, path.name, line) for area in check_prose.AREAS for tic, path, line, _ in check_prose.found_in(area, tree)
    }
    assert found == {
        ("go-on", "README.md", 3),
        ("go-on", "a.py", 2),
        ("go-on", "a.py", 3),
        ("people", "a.py", 2),
        ("people", "a.cc", 1),
        ("go-on", "a.cc", 2),
        ("go-on", "a.cc", 3),
    }


def test_more_is_an_error_and_less_can_be_recorded(tree, capsys):
    assert check_prose.main(["--update"], tree) == 0
    assert json.loads((tree / "tools" / "prose.json").read_text())["pages"]["go-on"] == 1
    (tree / "README.md").write_text(PAGE + "And they go on.\n")
    for arguments in ([], ["--update"]):
        assert check_prose.main(arguments, tree) == 1
        assert "pages: go-on: 2, the record has 1; write instead: continue" in capsys.readouterr().out
    (tree / "README.md").write_text("Nothing.\n")
    assert check_prose.main([], tree) == 0
    assert check_prose.main(["--update"], tree) == 0
    assert json.loads((tree / "tools" / "prose.json").read_text())["pages"]["go-on"] == 0


def test_this_tree_keeps_its_record(capsys):
    assert check_prose.main([]) == 0, capsys.readouterr().out
