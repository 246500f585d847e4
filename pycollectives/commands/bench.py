"""The command `python -m pycollectives bench`: run a benchmark of the folder `bench`."""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str | None, arguments: tuple[str, ...]) -> None:
    """Run a benchmark: `mpirun -n 8 python -m pycollectives bench skew [OPTIONS]`. Without a name, list all."""
    folder = _bench_folder()
    names = sorted(path.stem for path in folder.glob("[a-z]*.py"))
    if name is None:
        click.echo("\n".join(names))
        click.echo(f"{folder / 'README.md'} describes the options and columns")
        return
    if name not in names:
        raise click.ClickException(f"expected one of {', '.join(names)}; got {name!r}")
    if name not in ("compare", "plot", "zipline"):
        from ..support.native import MPI

        if not MPI.Is_initialized():
            raise click.ClickException("a benchmark needs MPI: unset MPI4PY_RC_INITIALIZE")
    script = folder / f"{name}.py"
    sys.argv = [f"python -m pycollectives bench {name}", *arguments]  # for its --help
    sys.path.insert(0, str(folder))  # as if the script were started directly
    runpy.run_path(str(script), run_name="__main__")


def _bench_folder() -> Path:
    """Return the folder of the scripts: `pycollectives_bench` if installed, `bench` in a source tree."""
    installed = find_spec("pycollectives_bench")
    places = list(installed.submodule_search_locations or ()) if installed else []
    for place in (*map(Path, places), Path(__file__).resolve().parents[2] / "bench"):
        if (place / "skew.py").is_file():
            return place
    raise click.ClickException("the benchmarks are not installed with this package")
