"""The project's page on a package index: README.md with links that work there, and the addresses.

An index has no other files of the project. Links to files go to REPOSITORY. While that is empty, only the texts of
links are shown, and pictures are omitted.
"""

from __future__ import annotations

import re

REPOSITORY = ""  # the web address of the sources, without a slash at its end; nothing is published yet
PAPER = "https://doi.org/10.1145/3332466.3374528"

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"(```.*?```)", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)


def description(readme: str, version: str, repository: str = REPOSITORY) -> str:
    """Return README.md for an index; with `repository`, links go to the files of this version."""

    def absolute(link: re.Match[str]) -> str:
        image, text, target = link["image"], link["text"], link["target"]
        if "://" in target:
            return link[0]
        if not repository:
            return "" if image else text
        kind = "raw" if image else "blob"
        return f"{image}[{text}]({repository}/{kind}/v{version}/{target})"

    parts = CODE.split(COMMENT.sub("", readme))  # code at the odd places
    parts[::2] = [LINK.sub(absolute, part) for part in parts[::2]]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))


def addresses(version: str, repository: str = REPOSITORY) -> dict[str, str]:
    """Return the project's addresses by their labels, as an index shows them."""
    if not repository:
        return {"Paper": PAPER}
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/v{version}/docs/index.md",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Paper": PAPER,
    }
