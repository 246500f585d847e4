"""What a package index shows: links that lead somewhere, and addresses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "_build"))

from index_page import LINK, PAPER, addresses, description  # noqa: E402

HOME = "https://example.org/pycollectives"

README = """# Name

See [a page](docs/a.md#part) and [a paper](https://doi.org/1).

```python
x = table[0](index)
```

<!-- begin block -->

![A picture](docs/figures/a.png)

<!-- end block -->

The end.
"""


def test_links_go_to_the_files_of_the_version():
    text = description(README, "1.2.0", HOME)
    assert f"[a page]({HOME}/blob/v1.2.0/docs/a.md#part) and [a paper](https://doi.org/1)" in text
    assert f"\n\n![A picture]({HOME}/raw/v1.2.0/docs/figures/a.png)\n\n" in text
    assert "x = table[0](index)" in text
    assert "<!--" not in text


def test_without_a_repository_there_is_no_link_that_leads_nowhere():
    text = description(README, "1.2.0", "")
    assert "See a page and [a paper](https://doi.org/1)." in text
    assert "picture" not in text
    assert "\n\n\n" not in text
    assert text.endswith("```\n\nThe end.\n")


@pytest.mark.parametrize("repository", ["", HOME])
def test_the_readme_of_the_project(repository):
    readme = (ROOT / "README.md").read_text()
    text = description(readme, "1.2.0", repository)
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    targets = [link["target"] for link in LINK.finditer(prose)]
    assert targets
    assert all("://" in target for target in targets)
    assert re.findall(r"```.*?```", text, re.DOTALL) == re.findall(r"```.*?```", readme, re.DOTALL)
    files = [target.partition("/v1.2.0/")[2].partition("#")[0] for target in targets if target.startswith(HOME)]
    assert bool(files) == bool(repository)
    for file in files:
        assert (ROOT / file).exists(), file


def test_addresses():
    assert addresses("1.2.0", "") == {"Paper": PAPER}
    with_home = addresses("1.2.0", HOME)
    assert list(with_home) == ["Source", "Documentation", "Changelog", "Issues", "Paper"]
    for address in with_home.values():
        path = address.partition("/blob/v1.2.0/")[2]
        assert not path or (ROOT / path).exists()
    assert all(len(label) <= 32 for label in with_home)  # what an index takes
