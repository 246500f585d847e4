"""The command line: `python -m pycollectives COMMAND`; `pycollectives.commands` has a file for each command."""

from __future__ import annotations

import os
import sys

from . import __version__
from .support.extras import missing_for_command_line

if missing := missing_for_command_line():
    sys.exit(missing)

import click

from .commands.advise import advise
from .commands.bench import bench
from .commands.dump import dump
from .commands.experiments import experiments
from .commands.info import info
from .commands.simulate import simulate
from .commands.slurm import slurm
from .commands.top import top
from .commands.topology import topology
from .commands.trace import trace
from .commands.train import train
from .commands.tune import tune

LAUNCHED = {"PMIX_RANK", "PMI_RANK"}
"""The environment variables that launchers set for each rank."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Run the tools of pycollectives, a library of collectives that do not wait for stragglers."""
    if LAUNCHED & os.environ.keys():
        os.environ["TTY_COMPATIBLE"] = "0"  # no colors from rich: a launcher may write its pseudo-terminal to a file


for command in (advise, bench, dump, experiments, info, simulate, slurm, top, topology, trace, train, tune):
    main.add_command(command)


if __name__ == "__main__":
    main(prog_name="python -m pycollectives")
