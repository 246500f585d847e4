"""The examples in docstrings do what they show."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import pycollectives
from pycollectives import groups, hop, policies, servers, topology, zipline

MODULES = ["pycollectives"] + [
    module.name
    for module in pkgutil.walk_packages(pycollectives.__path__, "pycollectives.")
    if module.name.rpartition(".")[2] not in ("_core", "_version", "__main__")
]

NEED_TORCH = ("pycollectives.torch.", "pycollectives.train.torch_models.")


def part(name):
    """Return the part of the package that a module is of; those that need PyTorch are parts of their own."""
    return next((prefix for prefix in NEED_TORCH if name.startswith(prefix)), ".".join(name.split(".")[:2]))


@pytest.mark.parametrize("name", sorted(set(map(part, MODULES))))
def test_examples(name):
    """In as many tests as there are parts: each process imports again what the modules need."""
    if name in NEED_TORCH:
        pytest.importorskip("torch")
    modules = [module for module in MODULES if part(module) == name]
    failed = {module: doctest.testmod(importlib.import_module(module)).failed for module in modules}
    assert not any(failed.values()), failed


def test_every_public_class_has_an_example():
    classes = [name for name in policies.__all__ if name[0].isupper()]
    for name in ("Communicator", "PartialAllreduce", "PartialRequest"):
        assert ">>> " in getattr(pycollectives, name).__doc__, name
    for name in classes:
        if name != "Policy":
            assert ">>> " in getattr(policies, name).__doc__, name


def members(kind):
    """Return the public methods and properties of a class that this package defines, each with its name."""
    of_package = [base for base in kind.__mro__ if base.__module__.startswith("pycollectives")]
    names = {name for base in of_package for name in vars(base) if not name.startswith("_")}
    found = {name: getattr(kind, name) for name in sorted(names)}
    return {name: one for name, one in found.items() if inspect.isroutine(one) or inspect.isdatadescriptor(one)}


PUBLIC = (pycollectives, groups, hop, policies, servers, topology, zipline)


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_every_public_member_has_a_docstring(module):
    """Its own, or that of a base class."""
    found = {name: getattr(module, name) for name in module.__all__}
    for name, kind in [*found.items()]:
        found |= {f"{name}.{member}": one for member, one in members(kind).items()} if inspect.isclass(kind) else {}
    found = {name: one for name, one in found.items() if callable(one) or inspect.isdatadescriptor(one)}
    assert [name for name, one in found.items() if not inspect.getdoc(one)] == []
