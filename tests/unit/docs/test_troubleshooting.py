"""docs/troubleshooting.md quotes what the program says: if a message changes, so must the page."""

from __future__ import annotations

import ast
import builtins
import re

import pytest
from source_texts import ROOT, VALUE, source, texts_of_cpp, texts_of_python

from pycollectives.support import errors

PAGE = ROOT / "docs" / "troubleshooting.md"
SPAN = re.compile(r"`([^`]+)`")
COMMANDS = {"kill", "make", "mpirun", "pip", "python", "ulimit"}


def test_strings_are_joined_as_the_languages_join_them(tmp_path):
    module = tmp_path / "module.py"
    module.write_text('"""Not this."""\n\ntext = (f"expected {x}, " "got "\n    f"none of {x}")\n')
    assert texts_of_python(module) >= {f"expected {VALUE}, got none of {VALUE}"}
    assert not any("Not this" in text for text in texts_of_python(module))
    cpp = """throw Error("a: " + std::string(1, '"') + "one"  // "not this"\n      " \\"text\\" of two");"""
    assert texts_of_cpp(cpp) == {"a: ", 'one "text" of two'}


# --- What the page quotes


def entries() -> list[tuple[str, str]]:
    """Return the heading of each entry and what is below it."""
    parts = re.split(r"^### (.*)\n", PAGE.read_text(), flags=re.MULTILINE)
    return [(heading, body.split("\n## ")[0]) for heading, body in zip(parts[1::2], parts[2::2], strict=True)]


@pytest.mark.parametrize("heading", [heading for heading, _ in entries()])
def test_a_heading_is_what_the_program_says(heading):
    (quoted,) = SPAN.findall(heading)
    assert heading == f"`{quoted}`"
    assert quoted in source()


def quoted_phrases() -> list[str]:
    """Return the phrases of the entries: of three words or more, and no command."""
    spans = {" ".join(span.split()) for _, body in entries() for span in SPAN.findall(body)}
    phrases = [span for span in spans if re.fullmatch(r"[\w:]+( [\w:]+){2,}", span)]
    return sorted(phrase for phrase in phrases if phrase.split()[0] not in COMMANDS)


@pytest.mark.parametrize("phrase", quoted_phrases())
def test_a_phrase_is_what_the_program_says(phrase):
    if not re.search(r"\b[A-Z]+\b", phrase):  # NAME and N stand for something
        assert phrase in source()


def classes() -> set[str]:
    """Return the names of all exceptions that a user may meet."""
    own = {
        node.name
        for path in (ROOT / "pycollectives").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    return own | set(dir(builtins))


def test_the_classes_exist_and_none_is_left_out():
    named = set(re.findall(r"\b[A-Z][A-Za-z]*(?:Error|Warning)\b", PAGE.read_text()))
    assert named <= classes()
    assert set(errors.__all__) <= named


@pytest.mark.parametrize(("heading", "body"), entries(), ids=[heading for heading, _ in entries()])
def test_an_entry_begins_with_the_class_or_says_where_it_is_printed(heading, body):
    first = body.strip().split(".")[0]
    assert re.match(r"(Raised as `\w+Error`|Warning \(`\w+Warning`\)|Printed|Part of a `StallError`)", first), heading


def test_every_group_is_in_the_index():
    text = PAGE.read_text()
    index, _, _ = text.partition("\n## ")
    groups = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert re.findall(r"^- \[(.*?)\]", index, re.MULTILINE) == groups
