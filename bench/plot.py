"""Draw the JSON lines of the benchmarks, with a panel for each benchmark and setting.

    python -m pycollectives bench plot skew.jsonl --output skew.png

Several files make one figure.
"""

from __future__ import annotations

import logging
from pathlib import Path

import click
import matplotlib

matplotlib.use("Agg")
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # hides the note about a new font cache

from matplotlib import pyplot as plt  # noqa: E402

from common.figures import panels  # noqa: E402
from common.output import read_records  # noqa: E402


def draw(files: list[Path], output: Path) -> None:
    """Draw `files` to `output`; ValueError if there is nothing to draw or the suffix is an unknown format."""
    records = read_records(files)
    if any(record.get("baseline", "") is None for record in records):
        raise ValueError("expected results with a baseline: measure without --no-baseline")
    shown = panels(records)
    figure, grid = plt.subplots(1, len(shown), figsize=(6.4 * len(shown), 4.8), squeeze=False, layout="constrained")
    for axes, panel in zip(grid[0], shown, strict=True):
        panel.draw(axes, panel.records)
        axes.set_title(panel.title, fontsize=10)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=150)
    plt.close(figure)


@click.command(help=__doc__)
@click.argument(
    "files", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1, required=True, metavar="FILE..."
)
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="PATH")
def plot(files: tuple[Path, ...], output: Path) -> None:
    try:
        draw(list(files), output)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    plot()
