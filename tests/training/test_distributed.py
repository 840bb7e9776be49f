"""Several processes that train one network: through the command line, with gloo, against one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.execution import run_batch
from sgoif.bench.execution.launch import gpu_slots
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.errors import UserError
from sgoif.training import distributed
from sgoif.training.batches import Batches
from sgoif.training.images import ImageSet
from sgoif.training.session import Session
from sgoif.utils.files import atomic_write_json, load_npz
from sgoif.utils.paths import ROOT
from tests.bench.execution.test_run_batch import run, small_run
from tests.helpers.digit_tasks import noisy_task


def batch(plan: Plan, run_dir: Path, method: str, count: int) -> subprocess.CompletedProcess:
    """One Snakemake job, as its rule starts it."""
    plan.config["execution"]["processes"] = count
    atomic_write_json(run_dir / "config.json", plan.config)
    command = [sys.executable, "-m", "sgoif.bench", "batch", f"--config={run_dir / 'config.json'}", "--task=noisy"]
    command += ["--dataset=digits", f"--method={method}", "--batch=0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=run_dir.parent, env=environment, capture_output=True, text=True, timeout=180)


def result(run_dir: Path, method: str) -> tuple[dict, dict[str, np.ndarray]]:
    folder = run_dir / Cell("noisy", "digits", "n20_s0", 0, method).folder
    return json.loads((folder / "result.json").read_text()), load_npz(folder / "arrays.npz")


WATCHED = ("sgoif", "sgoif@twice")
TRAINERS = ("sce", "mixup", "coteaching")  # a loss of its own, pairs of images, two networks that choose from a batch


def methods(folder: Path, names=(*WATCHED, "loss", *TRAINERS), **recipe) -> tuple[Plan, Path]:
    """A short and gentle training: at a high learning rate rounding grows tenfold with every step."""
    plan, run_dir = small_run(folder, **{"epochs": 2, "lr": 0.01, **recipe})
    plan.config["noisy"]["digits"]["methods"] = list(names)
    return plan, run_dir


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, tuple]:
    """The plain run, SG-OIF and other trainers by one process."""
    plan, run_dir = methods(tmp_path_factory.mktemp("alone"))
    computed = ("plain", *WATCHED, *TRAINERS)
    for method in computed:
        run(plan, run_dir, method)
    return {method: result(run_dir, method) for method in computed}


def check_plain(found: tuple, alone: tuple) -> None:
    (both, double), (one, single) = found, alone
    np.testing.assert_allclose(double["test_logits"], single["test_logits"], rtol=1e-3, atol=2e-3)
    for name in ("margins", "losses", "errors", "logits"):  # stored as halves
        np.testing.assert_allclose(double[name], single[name], rtol=1e-2, atol=2e-2, equal_nan=True)
    np.testing.assert_array_equal(double["ids"], single["ids"])
    np.testing.assert_allclose(both["curves"]["loss"], one["curves"]["loss"], rtol=1e-4)
    assert both["network_passes"] == one["network_passes"] and both["key"] == one["key"]


def test_torchrun_through_the_command_line(tmp_path, alone):
    plan, run_dir = methods(tmp_path)
    done = batch(plan, run_dir, "plain", 2)
    assert done.returncode == 0, done.stderr[-3000:]
    check_plain(result(run_dir, "plain"), alone["plain"])
    assert (run_dir / "batches" / "noisy" / "digits" / "plain" / "0.json").is_file()


def test_methods_that_cannot_share_a_batch_run_in_one_process(tmp_path):
    plan, _ = methods(tmp_path, names=["sgoif", "loss", "mixup", "elr"])
    plan.config["execution"]["processes"] = 4
    plan.config["variants"]["sgoif"] = {"no_gate": {"gate": "none"}, "gce": {"loss": "gce"}, "elr": {"loss": "elr"}}
    shared, alone = ("plain", "folds", "sgoif", "sgoif@no_gate", "sgoif@gce", "mixup"), ("loss", "elr", "sgoif@elr")
    counts = {m: plan.processes("noisy", "digits", m) for m in (*shared, *alone)}
    assert counts == {**dict.fromkeys(shared, 4), **dict.fromkeys(alone, 1)}
    plan.config["noisy"]["digits"]["processes"] = 8  # a dataset has the last word
    assert plan.processes("noisy", "digits", "mixup") == 8 and plan.processes("noisy", "digits", "loss") == 1


@pytest.mark.parametrize(
    ("count", "gpus", "fit"), [(16, 64, 16), (16, 8, 8), (16, 12, 8), (16, 1, 1), (6, 4, 3), (4, 0, 4)]
)
def test_as_many_processes_as_have_a_gpu_and_deal_batches_evenly(count, gpus, fit):
    assert distributed.fitting(count, gpus) == fit


def test_on_several_nodes_every_node_starts_its_share_and_they_meet_on_the_first(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    assert distributed.launch_command(4)[-2:] == ["--standalone", "--nproc-per-node=4"]
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    monkeypatch.setattr(distributed.socket, "gethostname", lambda: "node7")
    command = distributed.launch_command(16)
    assert command[:5] == ["srun", "--overlap", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    assert {"--nnodes=2", "--nproc-per-node=8", "--rdzv-endpoint=node7:20041", "--rdzv-id=41"} <= set(command)


# ------------------------------------------------------------------------------------------------ inside a group


def _member(rank: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + os.getppid() % 1000), "LOCAL_RANK": str(rank)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    with distributed.process_group("cpu"):
        found = {work.__name__: work(rank, Path(folder)) for work in (parts, resumed, trained, cells)}
        torch.save(found, f"{folder}/{rank}.pt")


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> list[dict]:
    """What the functions below return in each of two processes."""
    folder = tmp_path_factory.mktemp("pair")
    context = torch.multiprocessing.get_context("spawn")
    members = [context.Process(target=_member, args=(rank, str(folder))) for rank in range(2)]
    for member in members:
        member.start()
    for member in members:
        member.join(150)
        assert member.exitcode == 0
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def cells(rank: int, folder: Path) -> dict | None:
    """The cells of the engine as both processes compute them and the first writes them: plain, SG-OIF, a divergence."""
    plan, run_dir = methods(folder / f"of{rank}")  # both make their own inputs, so that no one waits for the other's
    computed = ("plain", *WATCHED, *TRAINERS)
    for method in computed:
        run_batch.run_batch(plan, run_dir, "noisy", "digits", method, 0, "cpu")
    if not distributed.is_main_process():
        assert not (run_dir / "cells").exists() or not list((run_dir / "cells").rglob("result.json"))
    found = {method: result(run_dir, method) for method in computed} if distributed.is_main_process() else {}
    plan, run_dir = methods(folder / f"steep{rank}", lr=1e20)
    run_batch.run_batch(plan, run_dir, "noisy", "digits", "plain", 0, "cpu")
    if distributed.is_main_process():
        path = run_dir / Cell("noisy", "digits", "n20_s0", 0, "plain").folder / "result.json"
        found["failed"] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("method", WATCHED)
def test_two_processes_give_the_scores_of_one(method, pair, alone):
    (both, double), (one, single) = pair[0]["cells"][method], alone[method]
    assert np.abs(double["scores"] - single["scores"]).max() < 1e-2 * single["scores"].std()
    assert np.abs(double["epoch_scores"] - single["epoch_scores"]).max() < 1e-2 * single["epoch_scores"].std()
    assert (double["remove"] != single["remove"]).mean() < 0.01
    assert both["extras"]["steps"] == one["extras"]["steps"] and both["extras"]["checks"] == one["extras"]["checks"]


def test_two_processes_give_the_plain_run_of_one_and_its_failure(pair, alone):
    found = pair[0]["cells"]
    check_plain(found["plain"], alone["plain"])
    assert found["failed"]["status"] == "failed" and found["failed"]["reason"].startswith("Diverged: ")


@pytest.mark.parametrize("method", TRAINERS)
def test_trainers_that_share_a_batch_train_the_network_of_one_process(method, pair, alone):
    (both, double), (one, single) = pair[0]["cells"][method], alone[method]
    assert both["status"] == one["status"] == "ok" and both["network_passes"] == one["network_passes"]
    np.testing.assert_allclose(double["test_logits"], single["test_logits"], rtol=1e-3, atol=2e-3)
    for name in ("scores", *(key for key in single if key.startswith("variant:"))):
        assert np.abs(double[name] - single[name]).max() < 2e-2 * single[name].std() + 1e-3, name
    for name, curve in one["curves"].items():
        np.testing.assert_allclose(both["curves"][name], curve, rtol=1e-3, atol=1e-3)


def parts(rank: int, folder: Path) -> dict:
    x = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    norm = distributed.sync_batch_norms(torch.nn.Sequential(torch.nn.BatchNorm2d(3)), torch.device("cpu")).train()
    mine = x[rank::2].clone().requires_grad_()
    out = norm(mine)
    (out * torch.arange(8.0)[rank::2].view(-1, 1, 1, 1)).sum().backward()
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([1.0 + rank, 4.0])
    distributed.average_gradients([weight])
    rows = distributed.shard(torch.arange(5))
    try:
        Batches(ImageSet(np.zeros((9, 8, 8), np.uint8), (0.5,), (0.5,)), torch.zeros(9, dtype=torch.long), 7, seed=0)
        odd = ""
    except UserError as e:
        odd = str(e)
    return {
        "out": out.detach(), "grad": mine.grad, "state": norm.state_dict(), "averaged": weight.grad, "odd": odd,
        "batch": distributed.gather_batch(distributed.own_rows(torch.arange(6).view(6, 1))),
        "rows": distributed.gather_shards(rows[:, None] * 10, 5), "few": distributed.shard(torch.arange(1)),
        "any": distributed.any_process(rank == 1), "same": (distributed.all_equal(3), distributed.all_equal(rank)),
        "shared": distributed.broadcast_array(np.array([rank])),
        "union": distributed.union_over_processes([f"{rank}", "x"]), "first": distributed.is_main_process(),
    }  # fmt: skip


def test_the_parts(pair):
    x = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    norm = torch.nn.Sequential(torch.nn.BatchNorm2d(3)).train()
    out = norm(x)
    (out * torch.arange(8.0).view(-1, 1, 1, 1)).sum().backward()
    for rank, got in enumerate(found["parts"] for found in pair):
        torch.testing.assert_close(got["out"], out[rank::2].detach())
        torch.testing.assert_close(got["grad"], x.grad[rank::2], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got["state"], norm.state_dict())
        assert got["batch"].flatten().tolist() == [0, 1, 2, 3, 4, 5]
        assert got["averaged"].tolist() == [1.5, 4.0] and got["rows"].flatten().tolist() == [0, 10, 20, 30, 40]
        assert got["any"] and got["same"] == (True, False) and got["shared"].tolist() == [0] and len(got["few"]) == 1
        assert got["union"] == {"0", "1", "x"} and got["first"] == (rank == 0)
        assert got["odd"] == "recipe.batch_size: 7 examples cannot be dealt to 2 processes evenly"


def trained(rank: int, folder: Path) -> Tensor:
    """A steep training in double precision, where rounding has no time to grow: logits of the training images."""
    task, _ = noisy_task(plain=False, n_train=300)
    batches = task.batches(batch_size=50)
    learner = task.learner(batches)
    learner.net.double()
    step = learner.stepper(lambda batch: (F.cross_entropy(learner.net(batch.x.double()), batch.labels),))
    for epoch in range(2):
        for batch in batches.epoch(epoch):
            step(batch)
    with torch.no_grad():
        return learner.net.eval()(task.train.batch(torch.arange(300)).double())


def test_in_double_precision_two_processes_are_one(pair):
    alone = trained(0, Path())
    for found in pair:
        torch.testing.assert_close(found["trained"], alone, rtol=1e-8, atol=1e-8)


class Counter:
    def __init__(self, rank: int):
        self.n, self.rank = 0, rank

    def state_dict(self) -> dict:
        return {"n": self.n, "rank": self.rank}

    def load_state_dict(self, state: dict) -> None:
        assert state["rank"] == self.rank
        self.n = state["n"]


def resumed(rank: int, folder: Path) -> list:
    """(epochs seen, count) of a run that stops in its third epoch, of one that goes on, and of one after a loss."""

    def run(stop: int | None = None) -> tuple[list[int], int]:
        session, counter, seen = Session(folder / "work", "key", 0, save_every=-1.0), Counter(rank), []
        for epoch in session.epochs(4, counter):
            counter.n += 1
            seen.append(epoch)
            if epoch == stop:
                break
        distributed.barrier()
        return seen, counter.n

    found = [run(stop=2), run()]
    if rank == 1:
        (folder / "work" / "train-1of2.pt").unlink()
    return [*found, run()]


def test_each_process_resumes_its_own_state_and_only_where_all_can(pair):
    for found in pair:
        assert found["resumed"] == [([0, 1, 2], 3), ([2, 3], 4), ([0, 1, 2, 3], 4)]


def test_gpus_are_taken_all_or_none(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with gpu_slots.slot(tmp_path, 1, 2) as taken:
        assert taken == os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
        assert gpu_slots._take(tmp_path, ["0", "1", "2"], 1, 2) == {}
        third = gpu_slots._take(tmp_path, ["0", "1", "2"], 1, 1)
        assert list(third) == ["2"], "what could not be used was given back"
        third["2"].close()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with pytest.raises(UserError, match=r"execution\.processes: 4 processes need a GPU each, and 3 can be used"):
        gpu_slots.slot(tmp_path, 1, 4).__enter__()
