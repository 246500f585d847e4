"""A SLURM cluster of one machine: munged, slurmctld, and one slurmd for each virtual node.

Everything listens on loopback and lives in one folder; there is no systemd, cgroup or accounting. The hardware of the
nodes is what the configuration says it is (`config_overrides`). As root, each node has a host name of its own (in a UTS
namespace), so that MPI takes it for another machine, and its own /dev/shm, so that killed jobs leave no files behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from launcher import environment

if TYPE_CHECKING:
    from collections.abc import Callable

DAEMONS = ("munged", "slurmctld", "slurmd")
PACKAGES = "slurm-wlm munge libpmix-dev procps util-linux"

os.environ["PATH"] += os.pathsep + "/usr/sbin"  # where Debian has the daemons


class Kind(NamedTuple):
    """Nodes of one kind, which are the partition of that name."""

    name: str
    count: int
    hardware: str
    gpus: int = 0
    preemptible: bool = False

    @property
    def nodes(self) -> list[str]:
        return [f"{self.name}{n:03}" for n in range(1, self.count + 1)]


FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
"""Stand in for GPUs: SLURM wants devices, and looks no further."""

KINDS = (
    Kind("nid", 8, "Sockets=1 CoresPerSocket=12 ThreadsPerCore=2 RealMemory=64000 Feature=gpu"),  # Piz Daint
    Kind("gh", 4, "Sockets=4 CoresPerSocket=72 ThreadsPerCore=1 RealMemory=800000 Feature=gh200", gpus=4),  # Alps
    Kind("gtx", 4, "Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=128000"),  # Maverick2
    # Jobs of spot-urgent take these from jobs of spot, and from no others.
    Kind("spot", 2, "Sockets=1 CoresPerSocket=12 ThreadsPerCore=2 RealMemory=64000", preemptible=True),
)

CONFIGURATION = """\
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
# A job that was queued again waits until its old credential has expired: 2 minutes, unless said otherwise.
AuthInfo=socket={folder}/munge.sock,cred_expire=10
# A loaded machine answers late, and that is no failure. Jobs that have ended can be asked about until the end.
MessageTimeout=60
TCPTimeout=60
BatchStartTimeout=300
SlurmdTimeout=0
KillWait=60
MinJobAge=86400
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
TmpFS={folder}/tmp/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
MpiDefault=pmix
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
EnforcePartLimits=ALL
MailProg=/bin/true
ReturnToService=2
"""


def missing() -> list[str]:
    """Return the commands that are not there, and the library that SLURM loads by name."""
    commands = [command for command in (*DAEMONS, "sbatch", "pkill", "setpriv") if shutil.which(command) is None]
    try:
        ctypes.CDLL("libpmix.so")
    except OSError:
        return [*commands, "libpmix.so"]
    return commands


def free_ports(count: int) -> int:
    """Return the first of `count` neighbouring ports that nobody listens on."""
    for first in range(20000, 32000, count):
        with contextlib.ExitStack() as sockets:
            try:
                for port in range(first, first + count):
                    sockets.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports")


@dataclass
class Job:
    """A job as `scontrol show job` says it."""

    text: str

    def __getitem__(self, key: str) -> str:
        match = re.search(rf"\b{key}=(\S*)", self.text)
        assert match, f"no {key} in {self.text}"
        return match[1]


class Cluster:
    """The daemons, and what tests ask them. `folder` must have a short path: it holds a socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configuration = folder / "slurm.conf"
        self.nodes = [node for kind in KINDS for node in kind.nodes]
        self.has_host_names = False
        self.daemons: list[subprocess.Popen[bytes]] = []

    # --- Daemons -----------------------------------------------------------------------------------------------------

    def configure(self) -> None:
        """Write the configuration and the key."""
        port = free_ports(1 + len(self.nodes))
        user = getpass.getuser()
        host = socket.gethostname().split(".")[0]
        for name in ("state", *(f"{of}/{node}" for of in ("spool", "tmp") for node in self.nodes)):
            (self.folder / name).mkdir(parents=True)
        lines = [CONFIGURATION.format(host=host, user=user, port=port, folder=self.folder)]
        gres = []
        ports = iter(range(port + 1, port + 1 + len(self.nodes)))
        for kind in KINDS:
            has = f"Gres=gpu:{kind.gpus} " if kind.gpus else ""
            for name in kind.nodes:
                at = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={next(ports)}"
                lines.append(f"NodeName={name} {at} {kind.hardware} {has}State=UNKNOWN\n")
                gres += [f"NodeName={name} Name=gpu File={file} Flags=nvidia_gpu_env\n" for file in FILES[: kind.gpus]]
            partition = f"Nodes={','.join(kind.nodes)} MaxTime=24:00:00 OverSubscribe=EXCLUSIVE"
            default = "Default=YES" if kind is KINDS[0] else ""
            lines.append(f"PartitionName={kind.name} {partition} {default} PriorityTier=10 GraceTime=300\n")
            if kind.preemptible:
                lines.append(f"PartitionName={kind.name}-urgent {partition} PriorityTier=100 PreemptMode=OFF\n")
        self.configuration.write_text("".join(lines))
        (self.folder / "gres.conf").write_text("".join(gres))
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))

    def start(self) -> None:
        """Start the daemons and wait until every node is idle."""
        self.configure()
        names = {"key": "munge.key", "pid": "munged.pid", "log": "munged.log", "seed": "munge.seed"}
        files = [f"--{kind}-file={self.folder}/{name}" for kind, name in names.items()]
        self._start("munged", "--foreground", *files, f"--socket={self.folder}/munge.sock")
        self.wait((self.folder / "munge.sock").exists, "munged")
        self._start("slurmctld", "-D", "-c", "-f", str(self.configuration))
        apart = self._host_names()
        self.has_host_names = bool(apart)
        for node in self.nodes:
            slurmd = ["slurmd", "-D", "-f", str(self.configuration), "-N", node]
            self._start(*([*apart, node, *slurmd] if apart else slurmd))
        states = ["sinfo", "--noheader", "--Node", "--format=%t"]
        self.wait(lambda: set(self.run(*states).stdout.split()) == {"idle"}, "the nodes")

    def _start(self, *command: str) -> None:
        """Start a daemon that ends when this process does, whatever way."""
        with (self.folder / "daemons.log").open("a") as log:
            self.daemons.append(
                subprocess.Popen(
                    ["setpriv", "--pdeathsig", "TERM", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.environment(),
                )
            )

    def _host_names(self) -> list[str]:
        """Return the command that gives a daemon a host name and shared memory of its own, where that is allowed."""
        hosts = self.folder / "hosts"
        own = "".join(f"127.0.0.1 {node}\n" for node in self.nodes)
        hosts.write_text(Path("/etc/hosts").read_text() + own)
        mounts = 'mount --bind "$0" /etc/hosts && mount -t tmpfs shm /dev/shm'
        script = f'{mounts} && hostname "$1" && shift && exec "$@"'
        apart = ["unshare", "--uts", "--mount", "sh", "-c", script, str(hosts)]
        allowed = subprocess.run([*apart, "node", "true"], capture_output=True, check=False).returncode == 0
        return apart if allowed else []

    def stop(self) -> None:
        """End all jobs, and the daemons that were started here."""
        self.cancel_all()
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def cancel_all(self) -> None:
        """End all jobs."""
        user = f"--user={getpass.getuser()}"
        self.run("scancel", user)
        self.run("scancel", user, "--full", "--signal=KILL")
        with contextlib.suppress(AssertionError):
            self.wait(lambda: not self.run("squeue", "--noheader").stdout, "the end of all jobs")

    # --- Questions ---------------------------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Return the environment in which SLURM's commands know this cluster, and Open MPI may be root's.

        What jobs are told by their script, and what a job around this test was told, is left out.
        """
        here = environment(SLURM_CONF=str(self.configuration))
        others = ("SLURM_", "SBATCH_", "MPICH_", "OMP_NUM_THREADS")
        return {name: value for name, value in here.items() if name == "SLURM_CONF" or not name.startswith(others)}

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command that knows this cluster. Limits of time are for what hangs: a loaded machine is slow."""
        options = {"env": self.environment(), "timeout": 500, **options}
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    def ask(self, *command: str) -> str:
        """Return what a command of SLURM prints; it must not fail."""
        done = self.run(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def job(self, number: str) -> Job:
        return Job(self.ask("scontrol", "show", "job", number))

    @staticmethod
    def wait(condition: Callable[[], object], what: str, limit: float = 400) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + limit
        while not condition():
            assert time.monotonic() < deadline, f"waited {limit} s for {what}"
            time.sleep(0.5)
