"""Check everything that a release needs except the upload, and print a line for each check.

    python tools/release_check.py    what `make release-check` runs; status 1 if a check fails

A release is a commit with the tag vVERSION, for the version in pyproject.toml. CHANGELOG.md has a dated section of that
version. The sdist and the wheel are built from the commit and tried (`make wheel`), and the site is built.
"""

from __future__ import annotations

import email
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
SDIST_FILES = ("PKG-INFO", "COMMIT")


class NotReadyError(Exception):
    """A check has failed: the expected state, the found state, and the remedy."""


def output(root: Path, *command: str | Path) -> str:
    """Return the output of a command, without white space around it. If the command fails, the check fails."""
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise NotReadyError(f"{' '.join(map(str, command))}: status {done.returncode}\n{last}")
    return done.stdout.strip()


def version_of(root: Path) -> str:
    """Return the version of the project; it has three numbers, and perhaps a pre-release."""
    found = re.search(r'^version = "(.*)"$', (root / "pyproject.toml").read_text(), re.MULTILINE)
    version = found[1] if found else ""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise NotReadyError(f"expected a version such as 1.2.3 or 1.2.3rc1 in pyproject.toml, got {version!r}")
    return version


def check_tag(root: Path) -> str:
    """Check that the checkout is the tagged commit, without changes."""
    tag = f"v{version_of(root)}"
    if changes := output(root, "git", "status", "--porcelain"):
        raise NotReadyError(f"expected a checkout without changes, got\n{changes}")
    here = output(root, "git", "tag", "--points-at", "HEAD").split()
    versions = [one for one in here if re.match(r"v\d", one)]
    if versions != [tag]:
        raise NotReadyError(f"expected the tag {tag} at HEAD, found {', '.join(versions) or 'none'}: git tag -a {tag}")
    return tag


def check_changelog(root: Path) -> str:
    """Check that the version has a dated section with text, and that no entry is left for a later version."""
    version = version_of(root)
    parts = re.split(r"^## (.*)\n", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))
    titles = [title for title in sections if re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", title)]
    if len(titles) != 1 or not sections[titles[0]]:
        found = ", ".join(sections) or "none"
        raise NotReadyError(
            f"expected a section '## [{version}] - YYYY-MM-DD' with text in CHANGELOG.md, found {found}"
        )
    if sections.get("[Unreleased]"):
        raise NotReadyError(f"expected no entries under [Unreleased] in CHANGELOG.md: move them to [{version}]")
    return titles[0]


def members(archive: Path) -> dict[str, bytes]:
    """Return the files of an sdist or wheel that name its version, commit and content, without their top folders."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wanted = [name for name in wheel.namelist() if re.search(r"/(METADATA|_version\.py|.*\.cdx\.json)$", name)]
            return {name.rpartition("/")[2]: wheel.read(name) for name in wanted}
    with tarfile.open(archive) as sdist:
        files = {name: sdist.extractfile(one) for one in sdist if (name := one.name.partition("/")[2]) in SDIST_FILES}
        return {name: file.read() for name, file in files.items() if file}


def check_files(root: Path, folder: Path) -> str:
    """Check that a folder has an sdist and a wheel of this version and commit, with addresses and an SBOM."""
    version, commit = version_of(root), output(root, "git", "rev-parse", "--short=12", "HEAD")
    archives = sorted([*folder.glob("*.tar.gz"), *folder.glob("*.whl")])
    if [one.suffix for one in archives] != [".whl", ".gz"]:
        raise NotReadyError(f"expected an sdist and a wheel in {folder}, found {[one.name for one in archives]}")
    wheel, sdist = map(members, archives)
    built_from = re.search(rb'^commit = "(.*)"$', wheel["_version.py"], re.MULTILINE)
    bill = json.loads(wheel.get("pycollectives.cdx.json", "{}"))
    about = email.message_from_bytes(wheel["METADATA"])
    found = {
        "version of the wheel": (version, about["Version"]),
        "version of the sdist": (version, email.message_from_bytes(sdist["PKG-INFO"])["Version"]),
        "commit of the wheel": (commit, built_from and built_from[1].decode()),
        "commit of the sdist": (commit, sdist["COMMIT"].decode().strip()),
        "version in the wheel's SBOM": (version, bill.get("metadata", {}).get("component", {}).get("version")),
    }
    if wrong := [f"{what}: expected {want}, got {got}" for what, (want, got) in found.items() if want != got]:
        raise NotReadyError("; ".join(wrong) + ": build them again with `make wheel`")
    if not any(address.startswith("Source,") for address in about.get_all("Project-URL", [])):
        raise NotReadyError("expected an address of the sources: set REPOSITORY in _build/index_page.py")
    compiled_in = [f"{one['name']} {one['version']}" for one in bill["components"]]
    return f"{', '.join(one.name for one in archives)}; compiled in: {', '.join(compiled_in)}"


def checks(root: Path) -> dict[str, Callable[[], str]]:
    """Return the checks by their names."""
    files = root / "build" / "wheel"
    return {
        "version": lambda: version_of(root),
        "tag": lambda: check_tag(root),
        "changelog": lambda: check_changelog(root),
        "documentation": lambda: (output(root, "make", "docs"), "build/docs")[1],
        "sdist and wheel, tried": lambda: output(root, "make", "wheel").rpartition("try_wheel.py")[2].strip(),
        "their contents": lambda: check_files(root, files),
        "twine check": lambda: output(
            root, sys.executable, "-m", "twine", "check", "--strict", *files.glob("*.tar.gz"), *files.glob("*.whl")
        ),
    }


def main(root: Path = ROOT) -> int:
    """Run all checks; return the status."""
    failed = 0
    for name, check in checks(root).items():
        try:
            found, state = check(), "ok    "
        except NotReadyError as error:
            found, state, failed = str(error), "FAILED", failed + 1
        print(f"{state} {name}: {found}", flush=True)
    print(f"{failed} checks failed" if failed else "ready: upload build/wheel/*.tar.gz and build/wheel/*.whl")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
