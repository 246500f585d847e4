"""The examples in docstrings do what they show."""

import doctest
import importlib
import pkgutil

import pytest

import pycollectives
from pycollectives.partial_allreduce import policies

MODULES = ["pycollectives"] + [
    module.name
    for module in pkgutil.walk_packages(pycollectives.__path__, "pycollectives.")
    if module.name.rpartition(".")[2] not in ("_core", "_version", "__main__")
]

NEED_TORCH = ("pycollectives.interop.", "pycollectives.train.torch_models.")


@pytest.mark.parametrize("torch", [False, True], ids=["", "torch"])
def test_examples(torch):
    """In two processes, for each imports what its modules need."""
    if torch:
        pytest.importorskip("torch")
    failed = {
        name: doctest.testmod(importlib.import_module(name)).failed
        for name in MODULES
        if name.startswith(NEED_TORCH) == torch
    }
    assert len(failed) > 10
    assert not any(failed.values()), {name: number for name, number in failed.items() if number}


def test_every_public_class_has_an_example():
    classes = [name for name in policies.__all__ if name[0].isupper()]
    for name in ("Communicator", "PartialAllreduce", "PartialRequest", *classes):
        if name != "Policy":
            assert ">>> " in getattr(pycollectives, name).__doc__, name
