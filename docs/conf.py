"""Configuration of the site, which `make docs` builds with Sphinx from these Markdown pages and the docstrings.

The build does not need the compiled extension, PyTorch or the network. The extension's types are read from its stub,
PyTorch is replaced by a mock, and the names of other projects are looked up in docs/inventories.
"""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from unittest.mock import MagicMock

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

import mpi4py  # noqa: E402
from sphinx.ext import napoleon  # noqa: E402

mpi4py.rc.initialize = False  # nothing here communicates

import pycollectives  # noqa: E402
from pycollectives.partial_allreduce import collective as partial_allreduce  # noqa: E402

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "pycollectives"
author = "pycollectives contributors"
copyright = "pycollectives contributors, BSD-3-Clause"  # noqa: A001 - the name that Sphinx reads
html_title = project
html_theme = "furo"
html_show_sourcelink = False
smartquotes = False  # keeps the two hyphens of options and the quotes of programs
exclude_patterns = ["inventories", "results"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
myst_heading_anchors = 4  # pages link to headings, as in a repository

# --- Docstrings -------------------------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
default_role = "py:obj"  # a name in backticks is a link if it is documented, otherwise code
nitpicky = True
nitpick_ignore_regex = [("py:obj", "(?s).*")]
nitpick_ignore = [
    *(
        ("py:class", variable)
        for variable in (
            "SignedT",
            "T",
            "CollectiveT",
            "pycollectives.communicator.CollectiveT",
            "pycollectives.testing.T",
        )
    ),
    ("py:class", "Averaging"),  # the types of `DecentralizedOptimizer.averaging`
    ("py:class", "Mode"),  # Standard | NotifyAck | ..., of pycollectives.hop.modes
    ("py:class", "AnyTopology"),  # Topology | TimeVarying
    ("py:class", "Servers"),  # int | Iterable[int] | Literal["node"]
    ("py:class", "CollectiveOptimizer"),  # the base of both optimizers
    ("py:class", "pycollectives.groups.GeneratedGroups"),
    ("py:class", "pycollectives.torch.refusals.Wrapper"),  # one of them
    ("py:class", "pycollectives.torch.optimizer.CollectiveOptimizer"),
    ("py:class", "MPI.InPlaceType"),  # missing in the inventory
    ("py:class", "RemovableHandle"),  # of torch.utils.hooks
    ("py:class", "LRScheduler"),  # of torch.optim.lr_scheduler
]


def _types_of_the_extension() -> None:
    """Give the package the extension's `Round` and `RoundInfo`, with the signatures and docstrings of its stub."""
    stub = types.ModuleType("pycollectives._core")
    text = (DOCS.parent / "pycollectives" / "_core.pyi").read_text()
    exec(f"from __future__ import annotations\n{text}", vars(stub))
    for module, name in ((partial_allreduce, "Round"), (pycollectives, "RoundInfo")):
        setattr(module, name, getattr(stub, name))


def _imitate_torch() -> None:
    """Replace PyTorch by a mock, so that its modules can be imported and derived optimizers keep their signatures."""
    torch = MagicMock()
    torch.optim.Optimizer = type("Optimizer", (), {})
    torch.compiler.disable = lambda function: function
    torch.nn.Module = type("Module", (), {"__module__": "torch.nn"})
    torch.utils.data.Sampler = types.new_class("Sampler", (Generic[TypeVar("T")],))
    sys.modules["torch"], sys.modules["torch.utils"] = torch, torch.utils
    sys.modules["torch.utils.data"] = torch.utils.data


def _read_numpy_style(app: Sphinx, what: str, name: str, item: object, options: Any, lines: list[str]) -> None:
    """Turn the sections of a docstring into fields.

    The extension `napoleon` itself would read the first words of an attribute's docstring as its type, and an example
    at the end as part of the previous section.
    """
    sections = [number for number, line in enumerate(lines) if re.fullmatch("-{3,}", line)]
    examples = [number for number, line in enumerate(lines) if line.startswith(">>>")]
    if sections and examples:
        lines[examples[0] : examples[0]] = ["Examples", "--------"]
    style = napoleon.Config(napoleon_use_ivar=True, napoleon_use_rtype=False)
    lines[:] = napoleon.NumpyDocstring(lines, style, None, "function", name).lines()
    for number, line in enumerate(lines):  # a link would drop the dot of `.grad`
        lines[number] = re.sub(r"(?<!`)`(\.\w+)`", r"``\1``", line)


# --- Names ------------------------------------------------------------------------------------------------------------

intersphinx_mapping = {
    name: (address, f"inventories/{name}.inv")
    for name, address in {
        "mpi4py": "https://mpi4py.readthedocs.io/en/stable/",
        "numpy": "https://numpy.org/doc/stable/",
        "python": "https://docs.python.org/3/",
        "torch": "https://docs.pytorch.org/docs/stable/",
    }.items()
}
SHORT_NAMES = {
    "AbstractContextManager": "contextlib.AbstractContextManager",
    "LRScheduler": "torch.optim.lr_scheduler.LRScheduler",
    "MPI": "mpi4py.MPI",
    "NDArray": "numpy.typing.NDArray",
    "ndarray": "numpy.ndarray",
    "np": "numpy",
    "npt": "numpy.typing",
}
TOP_LEVEL = {"class", "data", "exception", "function", "type"}


def _full_name(app: Sphinx, env: BuildEnvironment, node: Element, contnode: Element) -> Any:
    """Find a type by its name in the sources: `BufferSpec`, `MPI.Comm`, `np.dtype`."""
    if node.get("refdomain") != "py":
        return None
    first, dot, rest = node["reftarget"].partition(".")
    if first in SHORT_NAMES:  # intersphinx looks for the full name next
        node["reftarget"] = SHORT_NAMES[first] + dot + rest
        return None
    name = node["reftarget"].removeprefix("_core.")
    if first == "pycollectives":  # where a class is defined, not where it is imported from
        name = name.rpartition(".")[2]
    domain = env.domains["py"]
    found = [
        full
        for full, _, kind, *_ in domain.get_objects()
        if full.endswith(f".{name}") and ("." in name or kind in TOP_LEVEL)
    ]
    if len(found) != 1:
        return None
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", found[0], node, contnode)


# --- Pages ------------------------------------------------------------------------------------------------------------


def _links_into_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """Make a link to a file outside this folder a download of it, and a link to a folder plain text."""
    folder = (DOCS / page).parent

    def replaced(link: re.Match[str]) -> str:
        text, path = link["text"].replace("`", ""), (folder / link["path"]).resolve()
        if path.is_dir():
            return text
        if path.is_file() and DOCS not in path.parents:
            return f"{{download}}`{text} <{link['path']}>`"
        return link[0]

    source[0] = re.sub(r"(?<!!)\[(?P<text>[^\]\[]+)\]\((?P<path>[^)#:\s]+)(#[^)\s]*)?\)", replaced, source[0])


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    _types_of_the_extension()
    _imitate_torch()
    app.connect("source-read", _links_into_the_repository)
    app.connect("autodoc-process-docstring", _read_numpy_style)
    app.connect("missing-reference", _full_name, priority=400)  # before intersphinx
