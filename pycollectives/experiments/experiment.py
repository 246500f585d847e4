"""An experiment: training jobs with different methods and loads, each compared with a baseline under the same load."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..train.settings import Settings, read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

__all__ = ["Experiment", "Job", "catalogue", "find"]

FOLDER = Path(__file__).parent / "catalogue"


@dataclass(frozen=True)
class Job:
    """One training job of an experiment, run with each seed.

    Attributes
    ----------
    name
        Name in tables and figures.
    baseline
        Name of the job with which its speed is compared; None if this job is a baseline.
    paper
        Speedup over the baseline in the paper, or the paper's words; None if the paper did not measure this job.
    settings
        Settings of the training.
    """

    name: str
    baseline: str | None
    paper: float | str | None
    settings: Settings

    def with_seed(self, seed: int) -> Settings:
        """Return the settings with another seed."""
        return Settings.of({**vars(self.settings), "seed": seed})

    def gave(self, result: Mapping[str, Any]) -> bool:
        """Whether a result, as stored in JSON, belongs to this job with its current settings."""
        settings = Settings().as_json() | result["settings"]  # an old result may lack new settings
        now = (self.name, self.baseline, self.with_seed(result["seed"]).as_json())
        return now == (result["job"], result["baseline"], settings)


@dataclass(frozen=True)
class Experiment:
    """The reproduction of a paper's figure.

    Attributes
    ----------
    name, title
        Name in commands, and title in documents.
    figure
        The paper and its figure.
    scale
        Differences from the paper.
    ranks, ranks_per_node
        Size of the communicator and of its nodes.
    target_loss
        Validation loss for the time to target; None to compare only steps per second.
    seeds, jobs
        Seeds and jobs. Each job runs with each seed.
    """

    name: str
    title: str
    figure: str
    scale: str
    ranks: int
    ranks_per_node: int | None
    target_loss: float | None
    seeds: tuple[int, ...]
    jobs: tuple[Job, ...] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Experiment:
        """Read an experiment from a TOML file.

        Raises
        ------
        ValueError
            A key is missing or unknown, or the baseline of a job is not an earlier job.
        """
        table = read_toml(path)
        try:
            shared, entries = table.pop("settings"), table.pop("jobs")
            jobs = tuple(_job(shared, dict(entry)) for entry in entries)
            options = {"ranks_per_node": None, "target_loss": None, "seeds": (1,), **table}
            experiment = cls(path.stem, jobs=jobs, **{**options, "seeds": tuple(options["seeds"])})
            experiment.check()
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path.name}: {error}") from None
        before: list[str] = []
        for job in jobs:
            if job.name in before:
                raise ValueError(f"{path.name}: job {job.name!r} appears twice")
            if job.baseline is not None and job.baseline not in before:
                expected = f"the name of an earlier job ({', '.join(before) or 'there is none'})"
                raise ValueError(f"{path.name}: job {job.name!r}: baseline: expected {expected}, got {job.baseline!r}")
            before.append(job.name)
        return experiment

    def part(self, only: Sequence[str] = (), seeds: str | None = None, ranks: int | None = None) -> Self:
        """Return the jobs whose names contain a string of `only`, and their baselines; by default all jobs.

        `seeds`: numbers separated by commas. `ranks`: a number of ranks other than the experiment's.

        Raises
        ------
        ValueError
            No job's name contains a string of `only`, or `seeds` is not a list of numbers.
        """
        chosen = {job.name for job in self.jobs if not only or any(text in job.name for text in only)}
        if not chosen:
            names = ", ".join(job.name for job in self.jobs)
            raise ValueError(f"only: expected part of a job's name ({names}); got {', '.join(only)!r}")
        for job in reversed(self.jobs):  # a baseline is before its jobs
            if job.name in chosen and job.baseline is not None:
                chosen.add(job.baseline)
        numbers = self.seeds
        if seeds is not None:
            texts = [text.strip() for text in seeds.split(",")]
            if not all(text.isdecimal() for text in texts):
                raise ValueError(f"seeds: expected numbers separated by commas, got {seeds!r}")
            numbers = tuple(map(int, texts))
        jobs = tuple(job for job in self.jobs if job.name in chosen)
        return replace(self, jobs=jobs, seeds=numbers, ranks=self.ranks if ranks is None else ranks)

    def check(self) -> None:
        """Raise ValueError if a run with these values is impossible."""
        for name, value in (("ranks", self.ranks), ("ranks_per_node", self.ranks_per_node or 1)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected a whole number >= 1, got {value!r}")
        if not isinstance(self.target_loss, int | float | None):
            raise ValueError(f"target_loss: expected a number, got {self.target_loss!r}")
        if not self.seeds or not self.jobs:
            raise ValueError("seeds, jobs: expected at least one of each")


def _job(shared: dict[str, Any], entry: dict[str, Any]) -> Job:
    name, baseline, paper = entry.pop("name"), entry.pop("baseline", None), entry.pop("paper", None)
    return Job(name, baseline, paper, Settings.of(shared, entry))


def catalogue() -> list[Experiment]:
    """Return all experiments of the package, sorted by name."""
    return [Experiment.read(path) for path in sorted(FOLDER.glob("*.toml"))]


def find(name: str) -> Experiment:
    """Return an experiment by its name or its .toml file."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml")))
        raise ValueError(f"expected one of {known}, or a .toml file; got {name!r}")
    return Experiment.read(path)
