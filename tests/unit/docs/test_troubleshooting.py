"""docs/troubleshooting.md quotes what the program says: if a message changes, so must the page."""

from __future__ import annotations

import ast
import builtins
import re

import pytest
from source_texts import ROOT, VALUE, source, text_of, texts_of_cpp, texts_of_python

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


# --- What the page leaves out

KINDS = ("StallError", "MismatchError", "RankFailedError", "ClosedError")
"""The exceptions whose messages have an entry."""
NOT_LISTED = (
    # with their own advice
    "all ranks must take the same number of steps",
    "abort() it on all ranks",
    "another call may be made",
    "Call it again.",
    "call that method again",
    "do not contribute it again",
    "use the communicator returned then",
    # with their own reason
    "all who could send more have left",
    "abort() ended the call",
    "another thread of this rank is closing it",
    "closing the communicator",
    "has closed the communicator",
    "has left the training after an exception",
    "has stopped the communicator on all ranks",
    "its stream on the device has other work",
    "parameters cannot be synchronized, since a rank has left",
    "the communicator is being closed: this thread is in its close()",
    "the communicator was closed while a call waited",
    "was closed meanwhile",
    "while messages were timed",
    # of a recovery, which catches them or adds its own text
    "a rank has died",
    "a rank died while",
    "has not received its state in time",
    "this rank has not repeated the survivors' calls within",
    "the survivors continue without this process",
    "new processes",
    # around a text with an entry
    "PYC_CHECK: ",
    "comes to none any more",
    "; since then ",
    "; the communicator is unusable now",
)
"""Parts of messages that need no entry."""


def raised() -> set[str]:
    """Return the fixed text of each exception of these kinds. One that is made elsewhere has less than two words."""
    texts = set()
    for path in (ROOT / "pycollectives").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in KINDS and node.args:
                texts.add(text_of(node.args[0]) or "")
    for path in (ROOT / "csrc").rglob("*.cc"):
        statements = path.read_text(encoding="utf-8").split(";\n")
        for match in filter(None, (re.search(rf"\b({'|'.join(KINDS)})\(.*", one, re.DOTALL) for one in statements)):
            texts.add(VALUE.join(sorted(texts_of_cpp(match[0]))))
    return {text for text in texts if re.search(r"\w \w", text)}


def test_a_message_has_an_entry_or_is_on_the_list():
    headings = [heading.strip("`") for heading, _ in entries()]
    known = [*headings, *NOT_LISTED]
    assert len(raised()) > 40
    assert [text for text in raised() if not any(part in text for part in known)] == []
    assert [part for part in NOT_LISTED if not any(part in text for text in raised())] == []
