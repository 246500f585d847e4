"""make release-check: each check passes for a release, and fails for one that is wrong in one thing."""

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import release_check
from release_check import NotReadyError, check_changelog, check_files, check_tag, version_of

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-30\n\n- A change.\n"
GOOD = {
    "version": "1.2.0",
    "commit": None,  # of HEAD
    "sbom": json.dumps({
        "metadata": {"component": {"version": "1.2.0"}}, "components": [{"name": "pybind11", "version": "3.1.0"}]
    }),
    "urls": "Project-URL: Source, https://example.org\n",
}  # fmt: skip


def git(root, *arguments):
    name = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *name, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path):
    """The checkout of a release."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Version 1.2.0")
    git(tmp_path, "tag", "v1.2.0")
    return tmp_path


def build(root, **different):
    """Write an sdist and a wheel."""
    made = GOOD | {"commit": git(root, "rev-parse", "--short=12", "HEAD")} | different
    about = f"Metadata-Version: 2.4\nName: pycollectives\nVersion: {made['version']}\n{made['urls']}"
    folder = root / "build"
    folder.mkdir()
    top = f"pycollectives-{made['version']}"
    with tarfile.open(folder / f"{top}.tar.gz", "w:gz") as sdist:
        for name, text in (("PKG-INFO", about), ("COMMIT", made["commit"])):
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(text)
            sdist.addfile(info, io.BytesIO(text.encode()))
    with zipfile.ZipFile(folder / f"{top}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{top}.dist-info/METADATA", about)
        wheel.writestr("pycollectives/_version.py", f'version = "1.2.0"\ncommit = "{made["commit"]}"\n')
        if made["sbom"]:
            wheel.writestr(f"{top}.dist-info/sboms/pycollectives.cdx.json", made["sbom"])
    return folder


def test_a_release_is_ready(root):
    assert version_of(root) == "1.2.0"
    assert check_tag(root) == "v1.2.0"
    assert check_changelog(root) == "[1.2.0] - 2026-11-30"
    assert "compiled in: pybind11 3.1.0" in check_files(root, build(root))


def test_a_version_that_is_none(root):
    (root / "pyproject.toml").write_text('version = "1.2.dev0"\n')
    with pytest.raises(NotReadyError, match=r"expected a version such as 1.2.3 .*, got '1.2.dev0'"):
        version_of(root)


@pytest.mark.parametrize(
    ("commands", "found"),
    [
        ([["tag", "-d", "v1.2.0"]], "expected the tag v1.2.0 at HEAD, found none"),
        ([["tag", "-d", "v1.2.0"], ["tag", "v1.1.0"]], "expected the tag v1.2.0 at HEAD, found v1.1.0"),
        ([["commit", "--allow-empty", "-qm", "More"]], "expected the tag v1.2.0 at HEAD, found none"),
        ([["rm", "-q", "--cached", "CHANGELOG.md"]], "expected a checkout without changes, got\nD  CHANGELOG.md"),
    ],
)
def test_another_tag_or_a_changed_checkout(root, commands, found):
    for command in commands:
        git(root, *command)
    with pytest.raises(NotReadyError) as failed:
        check_tag(root)
    assert found in str(failed.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CHANGELOG.replace("1.2.0", "1.1.0"), r"'## \[1.2.0\] - YYYY-MM-DD' .* found \[Unreleased\], \[1.1.0\]"),
        (CHANGELOG.replace(" - 2026-11-30", ""), "expected a section"),
        (CHANGELOG.replace("- A change.\n", ""), "expected a section .* with text"),
        (CHANGELOG.replace("[Unreleased]\n", "[Unreleased]\n\n- Later.\n"), r"no entries under \[Unreleased\]"),
    ],
)
def test_a_changelog_without_the_version(root, text, found):
    (root / "CHANGELOG.md").write_text(text)
    with pytest.raises(NotReadyError, match=found):
        check_changelog(root)


@pytest.mark.parametrize(
    ("different", "found"),
    [
        ({"version": "1.1.0"}, "version of the wheel: expected 1.2.0, got 1.1.0; version of the sdist: expected 1.2.0"),
        (
            {"commit": "0123456789ab-dirty"},
            r"commit of the wheel: expected \w+, got 0123456789ab-dirty; ",
        ),
        ({"sbom": ""}, "version in the wheel's SBOM: expected 1.2.0, got None"),
        ({"urls": "Project-URL: Paper, https://example.org\n"}, "set REPOSITORY"),
    ],
)
def test_files_of_another_release(root, different, found):
    with pytest.raises(NotReadyError, match=found):
        check_files(root, build(root, **different))


def test_all_checks_run_and_one_that_fails_is_the_status(root, capsys, monkeypatch):
    (root / "CHANGELOG.md").write_text(CHANGELOG.replace("1.2.0", "1.1.0"))
    git(root, "commit", "-qam", "Another changelog")
    git(root, "tag", "-f", "v1.2.0")
    listed = release_check.checks(root)
    monkeypatch.setattr(release_check, "checks", lambda _: {name: listed[name] for name in ("changelog", "tag")})
    assert release_check.main(root) == 1
    changelog, tag, last = capsys.readouterr().out.splitlines()
    assert changelog.startswith("FAILED changelog: expected a section")
    assert (tag, last) == ("ok     tag: v1.2.0", "1 checks failed")
