"""The stubs of the extensions name what the extensions have, no more and no less."""

import ast
import inspect
from pathlib import Path

import pytest

from pycollectives import _testing
from pycollectives.support.native import core

ROOT = Path(__file__).resolve().parents[3]


def declared(nodes):
    return {
        node.name if not isinstance(node, ast.AnnAssign) else node.target.id
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AnnAssign))
    }


def public(thing):
    return {name for name in vars(thing) if not name.startswith("_") and not inspect.ismodule(getattr(thing, name))}


@pytest.mark.parametrize("module", [core, _testing], ids=["core", "testing"])
def test_stub(module):
    name = module.__name__.rpartition(".")[2]
    tree = ast.parse((ROOT / "pycollectives" / f"{name}.pyi").read_text())
    assert declared(tree.body) - {"__version__"} == public(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names = {name for name in declared(node.body) if not name.startswith("_")}
            assert names == public(getattr(module, node.name)), node.name
