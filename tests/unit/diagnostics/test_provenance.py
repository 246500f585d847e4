"""The commit that results name is that of the checkout that the code lies in, and of no other."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pycollectives.diagnostics import provenance

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one commit of one file."""
    (tmp_path / "pycollectives" / "diagnostics").mkdir(parents=True)
    (tmp_path / "pycollectives" / "diagnostics" / "provenance.py").write_text("")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    by = ("-c", "user.name=x", "-c", "user.email=x@x")
    git(tmp_path, *by, "commit", "--quiet", "--message=x", "--no-gpg-sign")
    git(tmp_path, *by, "tag", "--no-sign", "--annotate", "--message=x", "v1")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_of_a_checkout(checkout):
    commit = git(checkout, "rev-parse", "--short=12", "HEAD")
    assert provenance.commit_of(checkout) == commit
    (checkout / "pycollectives" / "diagnostics" / "provenance.py").write_text("changed")
    assert provenance.commit_of(checkout) == f"{commit}-dirty"


def test_what_lies_elsewhere_has_none(checkout, tmp_path_factory):
    assert provenance.commit_of(checkout / "pycollectives") is None
    assert provenance.commit_of(tmp_path_factory.mktemp("no-checkout")) is None


@pytest.mark.parametrize(("built", "told"), [("0123456789ab", "0123456789ab"), ("unknown", None)])
def test_an_installed_package_tells_what_it_was_built_from(checkout, monkeypatch, built, told):
    monkeypatch.setattr(
        provenance, "__file__", str(checkout / "venv" / "pycollectives" / "diagnostics" / "provenance.py")
    )
    monkeypatch.setitem(sys.modules, "pycollectives._version", SimpleNamespace(commit=built))
    assert provenance.commit() == told


def test_in_a_checkout_it_is_the_checkouts(checkout, monkeypatch):
    monkeypatch.setattr(provenance, "__file__", str(checkout / "pycollectives" / "diagnostics" / "provenance.py"))
    monkeypatch.setitem(sys.modules, "pycollectives._version", SimpleNamespace(commit="0123456789ab"))
    assert provenance.commit() == git(checkout, "rev-parse", "--short=12", "HEAD")
