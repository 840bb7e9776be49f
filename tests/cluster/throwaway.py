"""A Slurm of one node and a PostgreSQL server that live as long as a `with` block, below one folder, as root."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SLURM = """
ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
ReturnToService=2
MpiDefault=none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:1 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing_for_slurm() -> str:
    """Why Slurm cannot be started here; empty when it can."""
    programs = [p for p in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(p, path=_path())]
    if os.geteuid():
        return "a throwaway Slurm needs root"
    if programs:
        return f"not installed: {', '.join(programs)} (Debian: slurm-wlm, munge)"
    found = importlib.util.find_spec("snakemake_executor_plugin_slurm")
    return "" if found else "snakemake-executor-plugin-slurm is not installed (make cluster)"


def missing_for_postgres() -> str:
    if os.geteuid():
        return "a throwaway PostgreSQL is started by root under another name"
    if not _postgres():
        return "not installed: PostgreSQL (Debian: postgresql)"
    return "" if importlib.util.find_spec("psycopg2") else "psycopg2 is not installed (make cluster)"


@contextlib.contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """The environment in which `sbatch` speaks to a new one-node cluster with a pretended GPU."""
    with _folder() as folder, _slurm(folder) as env:
        yield env


@contextlib.contextmanager
def _slurm(folder: Path) -> Iterator[dict[str, str]]:
    for name in ("munge", "state", "spool", "bin"):
        (folder / name).mkdir()
    (folder / "munge" / "key").write_bytes(os.urandom(128))
    (folder / "munge" / "key").chmod(0o600)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 * 8 // 10
    host, ports = socket.gethostname().split(".")[0], [_free_port(), _free_port()]
    facts = {"host": host, "folder": folder, "ports": ports, "cpus": os.cpu_count(), "memory": memory}
    (folder / "slurm.conf").write_text(SLURM.format(**facts))
    (folder / "gres.conf").write_text(f"NodeName={host} Name=gpu Count=1 File=/dev/null\n")
    conf = folder / "slurm.conf"
    for name in ("srun", "scontrol"):  # inside a job, where Snakemake has taken Slurm's variables away
        script = f'#!/bin/sh\nSLURM_CONF={conf} exec {shutil.which(name)} "$@"\n'
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}/bin:{_path()}", "SLURM_CONF": str(conf)}
    munge = [f"--{k}={folder}/munge/{v}" for k, v in (("socket", "socket"), ("key-file", "key"), ("pid-file", "pid"))]
    munge += [f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed", "--force", "--foreground"]
    with contextlib.ExitStack() as daemons:
        for command in (["munged", *munge], ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-c"]):
            out = daemons.enter_context(open(folder / f"{command[0]}.out", "w"))
            process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
            daemons.callback(process.wait, timeout=30)
            daemons.callback(process.terminate)
            time.sleep(1)
        _until(lambda: "idle" in _said(["sinfo", "-h", "-o", "%t"], env), f"Slurm's node stays down; see {folder}")
        yield env


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URI of a new database, reached through a socket in a folder of its own."""
    with _folder() as folder:
        shutil.chown(folder, "postgres")
        with _database(folder) as uri:
            yield uri


@contextlib.contextmanager
def _database(folder: Path) -> Iterator[str]:
    binaries, user = _postgres(), "postgres"
    _as(user, f"{binaries}/initdb -D {folder}/db -A trust --no-sync")
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    _as(user, f"{binaries}/pg_ctl -D {folder}/db -w -l {folder}/log -o '{options}' start")
    try:
        _as(user, f"{binaries}/createdb -h {folder} mlflow")
        yield f"postgresql://{user}@/mlflow?host={folder}"
    finally:
        _as(user, f"{binaries}/pg_ctl -D {folder}/db -m immediate stop")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Not pytest's, which no one but its owner may enter."""
    with tempfile.TemporaryDirectory(prefix="sgoif-cluster-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _postgres() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def _as(user: str, command: str) -> None:
    done = subprocess.run(["su", "-s", "/bin/sh", user, "-c", command], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _said(command: list[str], env: dict[str, str]) -> str:
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30).stdout


def _until(true: Callable[[], bool], otherwise: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, otherwise
        time.sleep(0.5)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
