"""What the documentation shows is what the program does; its links lead somewhere."""

from __future__ import annotations

import doctest
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    *ROOT.glob("*.md"),
    *(page for folder in (".", "design", "howto") for page in (ROOT / "docs" / folder).glob("*.md")),
    ROOT / "bench" / "README.md",
)
DOCUMENTS = sorted(PAGES)
LIMIT = 100


def python_blocks(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments, "-c", program] if program else [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=ROOT)


@pytest.mark.parametrize("document", ["docs/tutorial.md", "docs/training.md", "CONTRIBUTING.md"])
def test_the_examples_of_a_page_are_one_program(document):
    done = run("\n".join(python_blocks(ROOT / document)), "-W", "error")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_program_of_the_page_on_torch():
    pytest.importorskip("torch")
    done = run("\n".join(python_blocks(ROOT / "docs/torch.md")), "-W", "error")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"rank 0: loss 0\.\d+, 1\.0 ranks in time\n", done.stdout), done.stdout


@pytest.mark.parametrize("document", ["docs/footguns.md", "docs/groups.md", "docs/semantics.md", "docs/zipline.md"])
def test_the_sessions_of_a_page(document):
    """What is shown as a session at Python's prompt, one after the other."""
    sessions = "\n".join(python_blocks(ROOT / document))
    test = doctest.DocTestParser().get_doctest(sessions, {}, document, document, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_what_is_taken_from_the_program_is_up_to_date():
    done = run("", "docs/generate.py", "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_command_for_one_line_of_the_table_of_policies_gives_it():
    text = (ROOT / "docs" / "choosing.md").read_text()
    (arguments,) = re.findall(r"^python (-m pycollectives simulate .*)$", text, re.MULTILINE)
    told = json.loads(run("", *arguments.split(), "--json").stdout)
    expected = f"{told['throughput']:.2f}x | {told['contributors_mean']:.1f} | {told['active_mean']:.1f}"
    expected += f" | {told['missed_mean']:.2f} | {100 * told['late_fraction']:.0f} % |"
    assert f"| `quorum:4` | {expected}\n" in text


@pytest.mark.parametrize("name", ["activation", "architecture", "data"])
def test_the_drawing_is_there(name):
    """The .svg file has the labels of the .dot file."""
    dot = (ROOT / "docs" / "figures" / f"{name}.dot").read_text()
    svg = re.findall(r"<text [^>]*>(.*?)</text>", (ROOT / "docs" / "figures" / f"{name}.svg").read_text())
    drawn = sorted(html.unescape(text).replace("\xa0", " ") for text in svg)
    written = re.findall(r'label="(.*?)"|label=(\w+)', dot)
    assert drawn == sorted(line for quoted, word in written for line in (quoted or word).split("\\n") if line)


def commands() -> list[str]:
    """The lines of all pages that call this package's own command line without an MPI launcher."""
    found = set()
    for document in DOCUMENTS:
        for line in re.findall(r"python -m pycollectives simulate [^`\n]*", document.read_text()):
            found.add(line.strip())
    return sorted(found)


@pytest.mark.parametrize("command", commands())
def test_commands(command):
    if "FILE" in command:
        pytest.skip("a form, not a command")
    done = run("", *command.removeprefix("python ").split())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        page = (document.parent / path).resolve() if path else document
        assert page.exists(), target
        if heading:
            assert heading in {anchor(line) for line in page.read_text().splitlines() if line.startswith("#")}, target


def anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower()).replace(" ", "-")


def test_everything_was_measured():
    results = {path.name: path.read_text() for path in ROOT.glob("docs/results/*.txt") if path.name != "test.txt"}
    assert not [name for name, text in results.items() if "NOT MEASURED" in text], "python docs/generate.py --measure"
