"""Check the dependencies of layers in C++ and in Python. Prints violations; the exit status is 1 if there are any.

    python tools/check_layers.py [ROOT]   check
    python tools/check_layers.py --map    print the layers and parts with their dependencies (docs/design/layers.md)

C++: a layer includes only its own headers and headers of the layers that CMakeLists.txt allows. Only
csrc/transport/mpi_*, csrc/c_api/mpi_* and csrc/bindings may include <mpi.h>. Only csrc/bindings may include pybind11
and Python.h.

Python: every module belongs to a part of the table below and uses only the parts that the table allows. Imports have no
cycles, and a name is imported from the module that defines it. Pure modules use neither MPI nor the engine. No module
loads an extra at its top. The benchmarks use the public API. Imports under `if TYPE_CHECKING` are free.

Both: files have at most 500 lines, except the extension's stub.
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

# Each part of the package, lowest first, with the parts that it uses. It may also use all parts that those may use. A
# part is a module, or a folder without the modules that are parts themselves. `pycollectives` is the public API.
PARTS: dict[str, str] = {
    "_version": "",
    "_core": "",
    "_zipline": "",
    "support": "_core",
    "topology": "support",
    "zipline": "support _zipline",
    "agreement": "support",
    "diagnostics": "support _version",
    "policies": "support",
    "groups": "support",
    "simulation.workload": "support",
    "selection": "policies",
    "hop.modes": "support",
    "hop.gaps": "hop.modes topology",
    "servers.sync": "support",
    "simulation": "hop.gaps servers.sync policies groups simulation.workload",
    "request": "support",
    "arguments": "support",
    "collective": "support",
    "context": "agreement arguments",
    "partial_allreduce": "agreement arguments selection collective request",
    "partial_reduce": "agreement arguments selection groups collective",
    "neighbor_averaging": "agreement arguments topology collective request",
    "hop": "agreement arguments hop.gaps collective",
    "counter": "agreement arguments collective",
    "servers": "agreement arguments servers.sync collective request",
    "at_exit": "",
    "membership": "agreement arguments at_exit partial_allreduce partial_reduce",
    "communicator": "context membership partial_allreduce partial_reduce neighbor_averaging hop servers counter",
    "mpi_api": "communicator",
    "testing": "communicator",
    "pycollectives": "mpi_api topology zipline _version",
    "tuning": "pycollectives",
    "torch": "pycollectives",
    "train": "pycollectives torch simulation diagnostics",
    "experiments": "train",
    "slurm": "train",
    "commands": "tuning experiments slurm",
    "__main__": "commands",
}
PURE = {
    "_zipline",
    "hop.gaps",
    "hop.modes",
    "policies",
    "servers.sync",
    "simulation.workload",
    "support.environment",
    "support.errors",
    "support.extras",
    "support.typing",
    "support.validation",
    "topology",
    "zipline",
}
EXTRAS = {"cupy", "matplotlib", "ml_dtypes", "networkx", "rich", "sklearn", "torch"}
MAY_LOAD_EXTRAS = {"torch", "torch_models"}
FACADES = {"", "support.native"}  # they export names of other modules
LONGEST_FILE = 500  # lines
STUB = "_core.pyi"  # the stub of one module, which cannot be split
MOST_AT_TOP = 11  # modules at the top of the package, besides __init__ and __main__

CPP_TESTS = "cpp_test.h"  # of tests/cpp, which the extension for tests calls
MPI_HEADER = re.compile(r"mpi\.h|mpi4py/.*|transport/mpi_.*")
PYTHON_HEADER = re.compile(r"Python\.h|pybind11/.*|mpi4py/.*")


class Violation(NamedTuple):
    """A forbidden line."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        """Return the violation in the form of a compiler message."""
        return f"{self.path}:{self.line}: {self.reason}"


# --- C++ --------------------------------------------------------------------------------------------------------------


def cpp_layers(root: Path) -> dict[str, set[str]]:
    """Return the layers, each with the layers that it may use and itself."""
    layers: dict[str, set[str]] = {}
    for name, uses in re.findall(
        r"^ *pyc_layer\(([\w/]+)([^)]*)\)", (root / "CMakeLists.txt").read_text(), re.MULTILINE
    ):
        layers[name] = {name}.union(*(layers[used] for used in uses.split()))
    layers["bindings"] = {"bindings", *layers}
    return layers


def check_cpp(root: Path) -> Iterator[Violation]:
    """Yield the forbidden includes of csrc/."""
    layers = cpp_layers(root)
    for path in sorted((root / "csrc").rglob("*")):
        if path.suffix not in {".cc", ".h", ".inc", ".cu", ".cuh"}:
            continue
        where = path.relative_to(root)
        layer = layer_of(where.relative_to("csrc"))
        if layer not in layers:
            yield Violation(where, 1, f"csrc/{layer} is not a layer of CMakeLists.txt")
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            include = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
            if include and (reason := forbidden_include(where, layers[layer], include[1] == '"', include[2])):
                yield Violation(where, number, reason)


def layer_of(path: Path) -> str:
    """Return the layer of a file by its path in csrc/: its folder; a service's folders belong to the service."""
    parts = path.parent.parts
    return "/".join(parts[:2] if parts[:1] == ("services",) else parts) or "."


def forbidden_include(path: Path, may_use: set[str], quoted: bool, header: str) -> str | None:
    """Return why a file whose layer may use `may_use` must not include `header`; None if it may."""
    layer = layer_of(path.relative_to("csrc"))
    if MPI_HEADER.fullmatch(header) and not (
        layer == "bindings" or (layer in {"transport", "c_api"} and path.name.startswith("mpi_"))
    ):
        return f"<{header}> is for csrc/transport/mpi_*, csrc/c_api/mpi_* and csrc/bindings only"
    if PYTHON_HEADER.fullmatch(header) and layer != "bindings":
        return f"<{header}> is for csrc/bindings only"
    if quoted and header != CPP_TESTS:
        used = layer_of(Path(header))
        if used == "." or ".." in Path(header).parts or header.startswith("./"):
            return f'"{header}" does not name its layer: write "layer/file.h"'
        if used not in may_use:
            return f"{layer} must not use {used} ({header})"
    return None


# --- Python -----------------------------------------------------------------------------------------------------------


class Import(NamedTuple):
    """An imported module, by its absolute name."""

    module: str
    line: int
    on_load: bool  # executed when the importing module is loaded


def imports_of(tree: ast.AST, package: str, on_load: bool = True) -> Iterator[Import]:
    """Yield the imports below `tree`, a module of `package`, without imports for type checkers.

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


def parts_of_package() -> dict[str, set[str]]:
    """Return the parts of the package, each with the parts that it may use and itself."""
    parts: dict[str, set[str]] = {}
    for name, uses in PARTS.items():
        parts[name] = {name}.union(*(parts[used] for used in uses.split()))
    return parts


def part_of(module: str) -> str | None:
    """Return the part of a module, given by its name without the package's; None if it has no part."""
    name = module or PACKAGE
    while name not in PARTS:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    return name


def modules_of(root: Path) -> dict[str, Path]:
    """Return the modules of the package and their files, by name without the package's; the package itself is ""."""
    modules = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root / PACKAGE).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def defined_in(tree: ast.Module) -> set[str]:
    """Return the names that a module defines at its top, without imported ones."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


class Use(NamedTuple):
    """A module of the package that another one imports, and the imported name, if any."""

    module: str
    name: str
    line: int


def uses_of(path: Path, root: Path, modules: dict[str, Path]) -> Iterator[Use]:
    """Yield the imports of the package in a file."""
    package = ".".join(path.relative_to(root).parent.parts)
    for used in imports_of(ast.parse(path.read_text()), package):
        top, *inner = used.module.split(".")
        if top != PACKAGE:
            continue
        module = ".".join(inner)
        name = ""
        if module and module not in modules and part_of(module) != module:
            module, _, name = module.rpartition(".")
        yield Use(module, name, used.line)


def check_package(root: Path) -> Iterator[Violation]:
    """Yield the forbidden imports of the package."""
    may_use = parts_of_package()
    modules = modules_of(root)
    at_top = [name for name in modules if name and "." not in name and modules[name].name != "__init__.py"]
    if len(at_top) > MOST_AT_TOP + 1:  # and __main__
        yield Violation(Path(PACKAGE), 1, f"expected at most {MOST_AT_TOP} modules at its top, got {', '.join(at_top)}")
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        where = path.relative_to(root)
        yield from check_extras(where, path)
        part = part_of(module)
        if part is None:
            yield Violation(where, 1, f"{module} is in no part of the table in tools/check_layers.py")
            continue
        graph[module] = set()
        for use in uses_of(path, root, modules):
            graph[module].add(use.module)
            if reason := forbidden_use(module, part, use, may_use[part], modules):
                yield Violation(where, use.line, reason)
    for circle in circles(graph):
        where = modules[circle[0]].relative_to(root)
        yield Violation(where, 1, "modules import each other: " + " -> ".join(name or PACKAGE for name in circle))


def is_pure(module: str) -> bool:
    """Whether a module or its folder is pure."""
    return any(module == name or module.startswith(f"{name}.") for name in PURE)


def check_extras(where: Path, path: Path) -> Iterator[Violation]:
    """Yield the forbidden imports of a module from outside the package."""
    module = ".".join(where.with_suffix("").parts[1:])
    for used in imports_of(ast.parse(path.read_text()), ".".join(where.parent.parts)):
        top = used.module.split(".")[0]
        if top in EXTRAS and used.on_load and MAY_LOAD_EXTRAS.isdisjoint(where.parts):
            yield Violation(where, used.line, f"{top} is an extra: import it in the function that needs it")
        if top == "mpi4py" and is_pure(module):
            yield Violation(where, used.line, f"{module} is pure: it must not use mpi4py")
        if top in {"bench", "tests"}:
            yield Violation(where, used.line, f"the package must not use {top}")


def forbidden_use(module: str, part: str, use: Use, may_use: set[str], modules: dict[str, Path]) -> str | None:
    """Return why a module of `part` must not use another one; None if it may."""
    used_part = part_of(use.module)
    if used_part is None:
        return f"{use.module} is in no part of the table in tools/check_layers.py"
    if used_part not in may_use:
        return f"{part} must not use {used_part} ({use.module or PACKAGE})"
    if is_pure(module) and not is_pure(use.module):
        return f"{module} is pure: it must not use {use.module or PACKAGE}"
    if use.name and use.module in modules and use.module not in FACADES:
        defined = defined_in(ast.parse(modules[use.module].read_text()))
        if use.name not in defined:
            return f"{use.module} does not define {use.name}: import it from the module that does"
    return None


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the cycles of a graph without duplicates, each from its first module back to it."""
    found: dict[frozenset[str], list[str]] = {}
    done: set[str] = set()

    def visit(module: str, way: list[str]) -> None:
        if module in way:
            circle = [*way[way.index(module) :], module]
            found.setdefault(frozenset(circle), circle)
        elif module not in done:
            for used in sorted(graph.get(module, ())):
                visit(used, [*way, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])
    return [*found.values()]


def check_lengths(root: Path) -> Iterator[Violation]:
    """Yield the files that are too long."""
    for folder in ("csrc", PACKAGE, "bench", "tests", "tools", "docs"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".cc", ".h", ".inc", ".cu", ".cuh", ".py", ".pyi"}:
                lines = len(path.read_text().splitlines())
                if lines > LONGEST_FILE and path.name != STUB:
                    yield Violation(
                        path.relative_to(root), lines, f"expected at most {LONGEST_FILE} lines, got {lines}"
                    )


# --- Map --------------------------------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def cpp_map(root: Path) -> str:
    """Return a table of the layers of csrc/, with their purposes and the layers that they use directly."""
    lines = re.findall(r"^ *pyc_layer\(([\w/]+)([^)]*)\)  # (.*)$", (root / "CMakeLists.txt").read_text(), re.MULTILINE)
    rows = [[f"`{name}`", about, quoted(uses.split())] for name, uses, about in lines]
    rows.append(["`bindings`", "pybind11; no logic", "everything"])
    return table(["layer", "purpose", "uses"], rows)


def python_map(root: Path) -> str:
    """Return a table of the parts of the package, with their purposes and the parts that they use directly."""
    modules = modules_of(root)
    rows = []
    for part in [name for name in PARTS if not is_private(name)]:
        path = modules.get("" if part == PACKAGE else part)
        if path is None:
            continue
        about = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0].removesuffix(".")
        used = {
            part_of(use.module)
            for module, file in modules.items()
            if part_of(module) == part
            for use in uses_of(file, root, modules)
        } - {part, "_core", "_version", "_zipline", "support"}
        rows.append([f"`{part}`", about.replace("|", "\\|"), quoted([name for name in PARTS if name in used])])
    return table(["part", "purpose", "uses, besides `support`"], rows)


def quoted(names: list[str]) -> str:
    """Return names as Markdown code."""
    return ", ".join(f"`{name}`" for name in names)


# --- Benchmarks -------------------------------------------------------------------------------------------------------


def check_bench(root: Path) -> Iterator[Violation]:
    """Yield uses by the benchmarks of private names and modules, which start with an underscore."""
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
    """Whether `name` starts with an underscore and is not one of Python's, such as `__version__`."""
    return name.startswith("_") and not name.endswith("__")


def check(root: Path) -> list[Violation]:
    """Return all violations in the tree at `root`."""
    return [*check_cpp(root), *check_package(root), *check_bench(root), *check_lengths(root)]


def main() -> None:
    """Run the command line."""
    root = Path(__file__).resolve().parent.parent
    if sys.argv[1:] == ["--map"]:
        print(cpp_map(root), python_map(root), sep="\n\n")
        return
    violations = check(Path(sys.argv[1]) if len(sys.argv) > 1 else root)
    for violation in violations:
        print(violation)
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
