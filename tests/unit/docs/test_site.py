"""The site is complete, as far as its sources show: `make docs` builds it with Sphinx."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import pycollectives

DOCS = Path(__file__).resolve().parents[3] / "docs"
LEFT_OUT = {"inventories", "results"}  # as in conf.py


def pages() -> set[str]:
    found = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    return {page for page in found if page.partition("/")[0] not in LEFT_OUT}


def below(page: str, target: str) -> str:
    """The path below docs of what a page calls `target`."""
    return Path(os.path.normpath(Path(page).parent / target)).as_posix()


def in_toctrees(page: str) -> list[str]:
    text = (DOCS / page).read_text()
    return [
        below(page, f"{line}.md")
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if line and not line.startswith(":")
    ]


def links(page: str) -> set[str]:
    """The pages that a page leads to by one click."""
    targets = re.findall(r"\]\(([^)#:\s]+\.md)(?:#[^)\s]*)?\)", (DOCS / page).read_text())
    return {below(page, target) for target in targets} | set(in_toctrees(page))


def within(clicks: int) -> set[str]:
    reached = {"index.md"}
    for _ in range(clicks):
        reached |= {target for page in reached if (DOCS / page).exists() for target in links(page)}
    return reached


def test_every_page_is_in_one_toctree():
    listed = [entry for page in sorted(pages()) for entry in in_toctrees(page)]
    assert sorted(listed) == sorted(pages() - {"index.md"})


@pytest.mark.parametrize(
    ("page", "heading"),
    [
        ("install.md", "# Installing"),
        ("quickstart.md", "## The first program"),
        ("choosing.md", "# Choosing a policy"),
        ("troubleshooting.md", "# "),
        ("api/partial-allreduce.md", ".. automethod:: pycollectives.Communicator.partial_allreduce"),
        ("slurm.md", "# Jobs under SLURM"),
        ("first-job.md", "# The first job"),
        ("index.md", "## When not to use a partial allreduce"),
    ],
)
def test_what_is_asked_first_is_two_clicks_from_the_first_page(page, heading):
    assert page in within(2)
    assert re.search(rf"^{re.escape(heading)}", (DOCS / page).read_text(), re.MULTILINE)


def test_what_is_asked_first_is_linked_at_the_top_of_the_first_page():
    top = (DOCS / "index.md").read_text().partition("\n## ")[0]
    for page in ("install", "quickstart", "choosing", "troubleshooting", "api/partial-allreduce", "slurm"):
        assert f"]({page}.md" in top
    assert "](#when-not-to-use-a-partial-allreduce)" in top


@pytest.mark.parametrize(
    "word",
    ["halo", "k-means", "restart", "preempt", "slow node", "hang", "deadlock", "killed", "hostfile", "UCX", "barrier"],
)
def test_the_words_of_a_user_lead_to_a_page_that_has_them(word):
    table = (DOCS / "index.md").read_text().partition("## In your own words")[2].partition("```{toctree}")[0]
    rows = [line for line in table.splitlines() if word.lower() in line.partition(" | ")[0].lower()]
    pages = {below("index.md", target) for row in rows for target in re.findall(r"\]\(([^)#]+)", row)}
    assert [page for page in pages if word.lower() in (DOCS / page).read_text().lower()]


def documented() -> set[str]:
    """What the pages of the reference have directives for."""
    texts = [path.read_text() for path in sorted((DOCS / "api").glob("*.md"))]
    return set(re.findall(r"^\.\. (?:auto|py:)\w+:: ([\w.]+)", "\n".join(texts), re.MULTILINE))


@pytest.mark.parametrize("name", pycollectives.__all__)
def test_every_public_name_is_in_the_reference(name):
    assert f"pycollectives.{name}" in documented(), f"add {name} to a page in docs/api"


def test_the_methods_that_the_page_of_the_communicator_leaves_out_are_on_others():
    text = (DOCS / "api" / "communicator.md").read_text()
    (left_out,) = re.findall(r":exclude-members: (.*)", text)
    assert {f"pycollectives.Communicator.{name}" for name in left_out.split(", ")} <= documented()


def test_the_program_of_the_quickstart_is_that_of_the_readme():
    """Which test_docs.py runs."""
    (program,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "quickstart.md").read_text(), re.MULTILINE | re.DOTALL)
    assert program in (DOCS.parent / "README.md").read_text()
