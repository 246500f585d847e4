"""What docs/topology.md shows is what the package does."""

import doctest
import re
from pathlib import Path

from pycollectives import topology

PAGE = Path(__file__).resolve().parents[3] / "docs" / "topology.md"


def test_the_sessions():
    sessions = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(sessions, {}, str(PAGE), str(PAGE), 0)
    assert len(test.examples) > 15
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_table_has_every_graph():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert [name.replace("_", "-") for name in rows] == [*topology.NAMES]
    assert all(hasattr(topology, name) for name in rows)


def test_the_table_has_all_weights():
    assert tuple(re.findall(r'^\| `"([\w-]+)"` \|', PAGE.read_text(), re.MULTILINE)) == topology.KINDS
