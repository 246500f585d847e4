"""Checks which layer uses which, in C++ and in Python. Prints what is forbidden; the exit status is 1 if anything is.

    python tools/check_layers.py [ROOT]

C++: a layer includes its own headers and those of the layers that it may use, which CMakeLists.txt says. <mpi.h> is for
csrc/transport/mpi_* and csrc/bindings, pybind11 and Python.h are for csrc/bindings.

Python: the package's pure modules use neither MPI nor its other modules; no module loads an extra at its top; the
benchmarks use the public API. Imports under `if TYPE_CHECKING` are free.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "pycollectives"
PURE = {"config", "errors", "mixing", "policies", "topology", "typing", "zipline"}
EXTRAS = {"cupy", "matplotlib", "ml_dtypes", "rich", "sklearn", "torch"}
MAY_LOAD_EXTRAS = {"interop", "torch_models"}

MPI_HEADER = re.compile(r"mpi\.h|mpi4py/.*|transport/mpi_.*")
PYTHON_HEADER = re.compile(r"Python\.h|pybind11/.*|mpi4py/.*")


class Violation(NamedTuple):
    """A forbidden line."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        """Write it as compilers do."""
        return f"{self.path}:{self.line}: {self.reason}"


# --- C++ --------------------------------------------------------------------------------------------------------------


def cpp_layers(root: Path) -> dict[str, set[str]]:
    """The layers, each with those that it may use, itself included."""
    layers: dict[str, set[str]] = {}
    for name, uses in re.findall(r"^pyc_layer\((\w+)([^)]*)\)", (root / "CMakeLists.txt").read_text(), re.MULTILINE):
        layers[name] = {name}.union(*(layers[used] for used in uses.split()))
    layers["bindings"] = {"bindings", *layers}
    return layers


def check_cpp(root: Path) -> Iterator[Violation]:
    """The forbidden includes of csrc/."""
    layers = cpp_layers(root)
    for path in sorted((root / "csrc").rglob("*")):
        if path.suffix not in {".cc", ".h", ".inc"}:
            continue
        where = path.relative_to(root)
        layer = where.parts[1]
        if layer not in layers:
            yield Violation(where, 1, f"csrc/{layer} is no layer of CMakeLists.txt")
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            include = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
            if include and (reason := forbidden_include(where, layers[layer], include[1] == '"', include[2])):
                yield Violation(where, number, reason)


def forbidden_include(path: Path, may_use: set[str], quoted: bool, header: str) -> str | None:
    """Why the file of a layer that may use `may_use` must not include `header`; None if it may."""
    layer = path.parts[1]
    if MPI_HEADER.fullmatch(header) and not (
        layer == "bindings" or (layer == "transport" and path.name.startswith("mpi_"))
    ):
        return f"<{header}> is for csrc/transport/mpi_* and csrc/bindings only"
    if PYTHON_HEADER.fullmatch(header) and layer != "bindings":
        return f"<{header}> is for csrc/bindings only"
    if quoted:
        folder, slash, _ = header.partition("/")
        if not slash or folder in {".", ".."}:
            return f'"{header}" does not name its layer: write "layer/file.h"'
        if folder not in may_use:
            return f"{layer} must not use {folder} ({header})"
    return None


# --- Python -----------------------------------------------------------------------------------------------------------


class Import(NamedTuple):
    """An imported module, by its absolute name."""

    module: str
    line: int
    on_load: bool  # executed when the importing module is loaded


def imports_of(tree: ast.AST, package: str, on_load: bool = True) -> Iterator[Import]:
    """The imports below `tree`, a module of `package`, without those for type checkers.

    `from a import b` counts as `a.b`, since b may be a module.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for other in node.orelse:
                yield from imports_of(ast.Module([other], []), package, on_load)
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, node.lineno, on_load)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            for name in node.names:
                yield Import(f"{module}.{name.name}", node.lineno, on_load)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports_of(node, package, on_load and not is_function)


def check_package(root: Path) -> Iterator[Violation]:
    """The forbidden imports of the package."""
    for path in sorted((root / PACKAGE).rglob("*.py")):
        where = path.relative_to(root)
        for used in imports_of(ast.parse(path.read_text()), ".".join(where.parent.parts)):
            top, *inner = used.module.split(".")
            if top in EXTRAS and used.on_load and MAY_LOAD_EXTRAS.isdisjoint(where.parts):
                yield Violation(where, used.line, f"{top} is an extra: import it in the function that needs it")
            if where.parent.name == PACKAGE and where.stem in PURE:
                if top == "mpi4py":
                    yield Violation(where, used.line, f"{where.stem} is pure: it must not use mpi4py")
                if top == PACKAGE and inner[0] not in PURE:
                    yield Violation(where, used.line, f"{where.stem} is pure: it must not use {used.module}")
            if top in {"bench", "tests"}:
                yield Violation(where, used.line, f"the package must not use {top}")


def check_bench(root: Path) -> Iterator[Violation]:
    """What the benchmarks use of the package beside its public API: names and modules without a leading underscore."""
    for path in sorted((root / "bench").rglob("*.py")):
        where = path.relative_to(root)
        tree = ast.parse(path.read_text())
        for used in imports_of(tree, ".".join(where.parent.parts)):
            top, *inner = used.module.split(".")
            if top == PACKAGE and any(is_private(name) for name in inner):
                yield Violation(where, used.line, f"{used.module} is private: benchmarks use the public API")
        aliases = {
            name.asname or name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for name in node.names
            if name.name == PACKAGE
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) in aliases:
                yield Violation(where, node.lineno, f"{PACKAGE}.{node.attr} is private: benchmarks use the public API")


def is_private(name: str) -> bool:
    """Whether `name` starts with an underscore and is not one of Python's own, as `__version__` is."""
    return name.startswith("_") and not name.endswith("__")


def check(root: Path) -> list[Violation]:
    """Everything forbidden in the tree at `root`."""
    return [*check_cpp(root), *check_package(root), *check_bench(root)]


def main() -> None:
    """Command line."""
    violations = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    for violation in violations:
        print(violation)
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
