"""The parts of a run on a GPU: commands in order of value, each with its limit."""

from __future__ import annotations

from dataclasses import dataclass

RESULTS = "{results}"
"""In a command: a folder for its results."""


@dataclass(frozen=True)
class Part:
    """A command, and where its results belong: `build`, `probe`, `tests` or `benchmarks`."""

    name: str
    section: str
    limit: int
    command: list[str]


@dataclass(frozen=True)
class Plan:
    """What is run: at so many ranks, with so many bytes, on a GPU or `rehearsed` on the simulated driver."""

    ranks: list[int]
    megabytes: float
    rehearsed: bool
    python: str

    def parts(self) -> list[Part]:
        """Return them in order of value."""
        pair = min(2, max(self.ranks))
        libraries = [] if self.rehearsed else ["cupy", "torch"]
        return [
            Part("build", "build", 115, ["tests/gpu/offline.sh", "build"]),
            self._probe("probe of a process", 20, 1, "kernels", "streams"),
            self._probe("probe of processes", 30, pair, "processes", "arrays", *libraries),
            *(part for n in self.ranks for part in self._tests(n)),
            *(self._bars(n) for n in self.ranks),
            *self._benchmarks(max(self.ranks)),
        ]

    def _launch(self, ranks: int) -> list[str]:
        return ["tools/mpirun", "-n", str(ranks)]

    def _program(self, name: str, megabytes: float, ranks: int) -> list[str]:
        options = ["--megabytes", str(megabytes), "--json", f"{RESULTS}/records"]
        options += ["--simulated"] if self.rehearsed else []
        return [*self._launch(ranks), self.python, f"tests/gpu/{name}.py", *options]

    def _probe(self, name: str, limit: int, ranks: int, *checks: str) -> Part:
        return Part(name, "probe", limit, [*self._program("probe", min(self.megabytes, 16.0), ranks), *checks])

    def _tests(self, ranks: int) -> list[Part]:
        collectives = [f"tests/gpu/test_{name}_on_a_gpu.py" for name in ("groups", "allreduce", "pairwise")]
        training = ["tests/gpu/test_training_on_a_gpu.py"]
        if ranks == 1:
            paths = {"tests": (60, ["tests/unit/cuda/test_kernels.py", *collectives, *training])}
        else:
            paths = {"tests of collectives": (35, collectives), "tests of training": (35, training)}
        return [
            Part(f"{name}, P={ranks}", "tests", limit, [*self._launch(ranks), *self._pytest(chosen)])
            for name, (limit, chosen) in paths.items()
        ]

    def _pytest(self, paths: list[str]) -> list[str]:
        """Plugins of the machine are left out. After a failure a rank continues: most fail on all ranks alike."""
        program = "PYTHONPATH=tests/gpu exec pytest -v --color=no -p outcomes -p pytest_timeout -p no:cacheprovider"
        marked = [] if self.rehearsed else ["-m", "gpu"]
        options = f"--timeout 30 --outcomes {RESULTS}/records"
        return ["sh", "-c", f'{program} {options} "$@"', "sh", *marked, *paths]

    def _bars(self, ranks: int) -> Part:
        program = self._program("bench_bars", self.megabytes, ranks)
        repetitions = "1" if self.rehearsed else "20"
        return Part(f"bench_bars, P={ranks}", "benchmarks", 15, [*program, "--repetitions", repetitions])

    def _benchmarks(self, ranks: int) -> list[Part]:
        model = 4 * max(1, int(self.megabytes * 1e6 / 40))
        small, large = 1 << 15, 1 << (14 if self.rehearsed else 20)
        calls = ["--iterations", "2" if self.rehearsed else "16"]
        late, compute = ("10000", "2") if self.rehearsed else ("100000", "50")
        # Each call of `skew` takes as long as the late rank sleeps.
        skew = ["--warmup", "1" if self.rehearsed else "8", "--skew", "one-late", "--skew-us", late]
        options = {
            "skew": [*skew, "--policy", "solo,majority", "--bytes", str(large)],
            "latency": ["--policy", "solo,full", "--bytes", f"{small},{large}"],
            "groups": ["--compute-ms", compute, "--model-bytes", str(model)],
        }
        return [
            Part(f"{name}, P={ranks}", "benchmarks", 18, self._bench(name, ranks, calls + more))
            for name, more in options.items()
        ]

    def _bench(self, name: str, ranks: int, options: list[str]) -> list[str]:
        program = ["tests/gpu/simulated_bench.py", "--", name] if self.rehearsed else [f"bench/{name}.py"]
        device = [] if self.rehearsed else ["--device", "cuda"]
        return [*self._launch(ranks), self.python, *program, *device, *options, "--json", f"{RESULTS}/records"]
