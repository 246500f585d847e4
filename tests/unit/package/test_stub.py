"""The stub of the extension names what the extension has, no more and no less."""

import ast
import inspect
from pathlib import Path

import pycollectives
from pycollectives.support.native import core


def declared(nodes):
    return {
        node.name if not isinstance(node, ast.AnnAssign) else node.target.id
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AnnAssign))
    }


def public(thing):
    return {name for name in vars(thing) if not name.startswith("_") and not inspect.ismodule(getattr(thing, name))}


def test_stub():
    tree = ast.parse((Path(pycollectives.__file__).parent / "_core.pyi").read_text())
    assert declared(tree.body) - {"__version__"} == public(core)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names = {name for name in declared(node.body) if not name.startswith("_")}
            assert names == public(getattr(core, node.name)), node.name
