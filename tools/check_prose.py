"""Count turns of phrase that are hard to read, and fail if one has become more frequent.

    python tools/check_prose.py              compare with the record, tools/prose.json
    python tools/check_prose.py --update     record lower counts; higher ones too with --force
    python tools/check_prose.py --list TIC   print the places: FILE:LINE: the line

The check reads the pages, and the comments and strings of Python and C++ sources, but no code. Deliberate uses stay in
the record. TICS lists replacements.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path("tools") / "prose.json"

TICS = {
    "what-clause": (r"\bwhat (it|they|a|the|is|was|has|had|comes?|becomes?|goes|each|this|that|one) ", "the noun"),
    "makes-of": (r"\bmakes? of\b", "the effect of Y on X"),
    "of-which": (r"\bof (which|whom)\b", "whose, or repeat the noun"),
    "that-of": (r"\b(that|those) of\b", "repeat the noun"),
    "is-told": (r"\b(is|are|was|were|be|been|gets?) told\b", "receives, learns, gets the error"),
    "come": (r"\b(has|have) (not )?come\b|\bcomes? to (it|no|a|this)\b", "arrive, reach, call"),
    "people": (r"\b(nobody|anybody|everybody|somebody|whoever|he|his|him)\b", "no rank, all ranks, it"),
    "go-on": (r"\bgo(es)? on\b", "continue"),
    "now-and-then": (r"\bnow and then\b|\bby turns\b", "occasionally, in rotation"),
    "old-fashioned": (
        r"\bfor ever\b|\bno more\b|\bany more\b|\banew\b|\bhence\b|\bnonetheless\b|\balike\b|\bmeanwhile\b",
        "indefinitely, no longer, again, so, the same",
    ),
    "says": (r"\bsays? (so|which|what|who|how|when|it|that|why)\b", "shows, lists, reports, defines"),
    "opener": (r"(?:^|[.] )(?:So|Then|But|Else|Hence) ", "join the sentences, or drop the word"),
    "clipped": (r", (else|nor|yet) ", "otherwise, or a new sentence"),
    "idiom": (r"\bcannot be had\b|\bin the making\b|\bas ever\b|\bthere is no way\b", "unavailable, pending, as usual"),
    "alone": (r"\balone\b", "only, before the noun"),
    "colon": (r": (nothing|it|no|all|so|they|this|each) [a-z]+", "a new sentence"),
}
"""Turns of phrase, each with its replacement."""

AREAS = {
    "pages": ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "bench/README.md", "slurm/**/*.md"),
    "python": ("pycollectives/**/*.py", "bench/**/*.py", "examples/*.py", "docs/*.py", "tools/*.py"),
    "c++": ("csrc/**/*.h", "csrc/**/*.cc", "csrc/**/*.inc"),
}

COMMENT_OR_STRING = re.compile(r'//(?P<comment>[^\n]*)|"(?P<string>(?:[^"\\\n]|\\.)*)"')


def files(area: str, root: Path) -> list[Path]:
    """Return the files of an area, except this one, which contains all turns."""
    found = {path for pattern in AREAS[area] for path in root.glob(pattern)}
    return sorted(found - {root / "tools" / "check_prose.py"})


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of prose of a file, with their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from _of_page(text)
    elif path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
                for number, line in enumerate(token.string.splitlines(), start=token.start[0]):
                    yield number, line.lstrip("#'\" ")
    else:
        for number, line in enumerate(text.splitlines(), start=1):
            for found in COMMENT_OR_STRING.finditer(line):
                yield number, (found["comment"] or found["string"] or "").lstrip("/ ")


def _of_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page without code and generated blocks."""
    fence = generated = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fence = not fence
        elif line.startswith("<!-- begin"):
            generated = True
        elif line.startswith("<!-- end"):
            generated = False
        elif not (fence or generated):
            yield number, re.sub(r"`[^`]*`", "`code`", line)


def found_in(area: str, root: Path) -> Iterator[tuple[str, Path, int, str]]:
    """Yield each turn of an area, with its place."""
    patterns = {tic: re.compile(pattern, re.IGNORECASE if tic == "people" else 0) for tic, (pattern, _) in TICS.items()}
    for path in files(area, root):
        for number, line in lines_of(path):
            for tic, pattern in patterns.items():
                for _ in pattern.finditer(line):
                    yield tic, path, number, line


def count(root: Path) -> dict[str, dict[str, int]]:
    """Return the number of each turn in each area."""
    counts = {area: dict.fromkeys(TICS, 0) for area in AREAS}
    for area, numbers in counts.items():
        for tic, *_ in found_in(area, root):
            numbers[tic] += 1
    return counts


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Run the command line; return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--list", choices=TICS, metavar="TIC")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        for area in AREAS:
            for tic, path, number, line in found_in(area, root):
                if tic == chosen.list:
                    print(f"{path.relative_to(root)}:{number}: {line.strip()}")
        print(f"instead: {TICS[chosen.list][1]}")
        return 0
    record = json.loads((root / RECORD).read_text(encoding="utf-8")) if (root / RECORD).exists() else {}
    counts = count(root)
    worse = [
        f"{area}: {tic}: {number}, the record has {record[area][tic]}; write instead: {TICS[tic][1]}"
        for area, numbers in counts.items()
        for tic, number in numbers.items()
        if number > record.get(area, {}).get(tic, number)
    ]
    if chosen.update and (chosen.force or not worse):
        (root / RECORD).write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
        return 0
    if worse:
        print(*worse, "`python tools/check_prose.py --list TIC` shows the places", sep="\n")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
