"""The examples in docstrings do what they show."""

import doctest
import importlib
import pkgutil

import pytest

import pycollectives

MODULES = ["pycollectives"] + [
    f"pycollectives.{module.name}"
    for module in pkgutil.iter_modules(pycollectives.__path__)
    if module.name not in ("_core", "_version", "__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_public_class_has_an_example():
    for name in ("Communicator", "PartialAllreduce", "PartialRequest", *pycollectives.policies.__all__[:-1]):
        if name != "Policy":
            assert ">>> " in getattr(pycollectives, name).__doc__, name
