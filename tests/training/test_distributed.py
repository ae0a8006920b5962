"""Two processes train what one process trains with the joined batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import mops
from mops.config.recipe import Recipe
from mops.config.training import Training
from mops.errors import RecipeError, UsageError
from mops.training.machine import prepare_machine
from mops.training.step import step_seed
from running import one_core, run_python, world

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
NO_DROPOUT = {"training__dropout": 0, "training__head_dropout": 0, "training__learning_rate": 1e-3}
WEIGHTED = {"tasks__sentiment__class_weights": [1, 2, 3, 0.5, 1]}
# name -> what differs from the small recipe; each is trained by one process and by two
CASES: dict[str, dict[str, Any]] = {
    "unequal rows": {
        "plan": "separate",
        "training__schedule": "mixed",
        "training__per_task_batch_size": 1,
        "training__loss_weights": "uncertainty",
        **WEIGHTED,
    },
    "rows per task": {
        "training__per_task_batch_size": {"sentiment": 3, "paraphrase": 2, "similarity": 1},
        "training__loss_weights": "dwa",
        "training__dwa_steps": 3,
        "training__augment": {"word_dropout": 0.2, "swap": ["paraphrase"]},
    },
    "surgery": {"plan": "shared", "training__gradients": "pcgrad"},
    "surgery, unequal": {
        "plan": "hybrid:1",
        "training__gradients": "mgda",
        "training__schedule": "mixed",
        "training__per_task_batch_size": 1,
    },
    "stages": {
        "plan": "late:SI",
        "training__max_steps": None,
        "training__stages": [{"steps": 6, "frozen": True}, {"steps": 6}],
    },
    "early": {"training__early_stopping": 1, "training__eval_steps": 2},
}


def recipe_of(joined: int = 1, **settings: Any) -> Recipe:
    """Twelve steps without dropout; `joined` times the rows in each."""
    given = {"plan": "hybrid:1", "training__max_steps": 12, **NO_DROPOUT, **settings}
    sizes = given.pop("training__per_task_batch_size", 2)
    larger = (
        {task: joined * size for task, size in sizes.items()}
        if isinstance(sizes, dict)
        else joined * sizes
    )
    return world().recipe(**given, training__per_task_batch_size=larger)


def curve(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "curve.jsonl").read_text("utf-8").splitlines()]


def assert_same_curve(one: Path, two: Path) -> None:
    """All that follows from the joined batch; the shares of gradients are the first one's."""
    ours, theirs = curve(one), curve(two)
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for a, b in zip(ours, theirs, strict=True):
        for key in {"loss", "gradient_norm", "overall"} & set(a):
            assert a[key] == pytest.approx(b[key], abs=1e-5)
        for key in {"losses", "loss_weights"} & set(a):
            assert a[key] == pytest.approx(b[key], abs=1e-5)


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with one_core():
        yield


# ------------------------------------------------------------------ the command


@pytest.mark.slow
def test_torchrun_gives_the_losses_of_one_process(tmp_path: Path) -> None:
    """Fifty steps, 4 rows of a task in each of two processes against 8 in one."""
    settings = NO_DROPOUT | {"training__max_steps": 50, "training__eval_steps": 25}
    settings |= {"training__learning_rate": 1e-4}
    words = ["-m", "mops", "train", "--recipe", "plain", "--plan", "hybrid:1"]
    words += ["--out", str(tmp_path / "two")]
    words += world().options(**settings, training__per_task_batch_size=4)
    ended = run_python(*TORCHRUN, *words)
    assert ended.returncode == 0, ended.stderr
    mops.train(world().recipe(**settings, training__per_task_batch_size=8), tmp_path / "one")
    lines = [line for line in curve(tmp_path / "one") if "loss" in line]
    assert [line["step"] for line in lines] == [1, 10, 20, 30, 40, 50]
    assert_same_curve(tmp_path / "one", tmp_path / "two")
    one, two = (mops.read_record(tmp_path / name / "record.json") for name in ("one", "two"))
    assert (one.train_info.processes, two.train_info.processes) == (1, 2)
    assert one.train_info.tokens == two.train_info.tokens
    assert one.train_info.tasks == two.train_info.tasks
    assert ended.stdout.count("model   ") == 1  # one of them speaks
    assert ended.stderr.count("planned batches") == 3
    assert not (tmp_path / "two" / "state").exists()


# ------------------------------------------------------------------ one case after the other

NAN = {"training__learning_rate": 1e9, "training__head_learning_rate": 1e9}
INTERRUPTED = {"training__dropout": 0.1, "training__save_steps": 100}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Any]]]:
    """A folder with a run per case, and how each ended in both processes."""
    folder = tmp_path_factory.mktemp("two")
    cases = [{"out": name, "recipe": recipe_of(**case)} for name, case in CASES.items()]
    cases += [
        {"out": "nan", "recipe": recipe_of(**NAN)},
        {"out": "stopped", "recipe": recipe_of(**INTERRUPTED), "stop_at": 5},
        {"out": "stopped", "recipe": recipe_of(**INTERRUPTED)},
        {"out": "whole", "recipe": recipe_of(**INTERRUPTED)},
        {"out": "stopped", "recipe": recipe_of(**INTERRUPTED)},
        {"out": "half", "recipe": recipe_of(), "stop_at": 5},
    ]
    spec = [
        {**case, "out": str(folder / case["out"]), "recipe": case["recipe"].to_data()}
        for case in cases
    ]
    (folder / "cases.json").write_text(json.dumps(spec), "utf-8")
    script = Path(__file__).with_name("two_processes.py")
    launched = run_python(*TORCHRUN, str(script), str(folder / "cases.json"), str(folder))
    assert launched.returncode == 0, launched.stderr
    ends = [json.loads((folder / f"ends-{rank}.json").read_text("utf-8")) for rank in (0, 1)]
    return folder, [[case["out"], *pair] for case, *pair in zip(cases, *ends, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_both_are_the_run_of_the_joined_batch(
    ended: tuple[Path, list[list[Any]]], tmp_path: Path, name: str
) -> None:
    mops.train(recipe_of(2, **CASES[name]), tmp_path / "one")
    assert_same_curve(tmp_path / "one", ended[0] / name)
    ours, theirs = (
        mops.read_record(f / "record.json") for f in (tmp_path / "one", ended[0] / name)
    )
    assert ours.train_info.steps == theirs.train_info.steps
    assert ours.train_info.loss_weights == pytest.approx(theirs.train_info.loss_weights)


@pytest.mark.slow
def test_all_stop_and_one_of_them_says_why(ended: tuple[Path, list[list[Any]]]) -> None:
    by_name = {name: (one, two) for name, one, two in reversed(ended[1])}
    said = sorted(by_name["nan"])
    assert "is not a number" in said[0]
    assert said[1] == "SystemExit: 1"
    said = sorted(by_name["stopped"])  # the second process was asked
    assert said == [
        "Interrupted: stopped; the same command goes on where it was",
        "SystemExit: 130",
    ]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_bits(ended: tuple[Path, list[list[Any]]]) -> None:
    """With dropout, which differs between the processes and follows from the step."""
    folder = ended[0]
    outcomes = [one for name, one, _ in ended[1] if name == "stopped"]
    assert outcomes[1:] == ["finished", "finished"]  # the last one found it finished
    weights = "model/model.safetensors"
    assert (folder / "stopped" / weights).read_bytes() == (folder / "whole" / weights).read_bytes()


@pytest.mark.slow
def test_another_number_of_processes_is_refused(ended: tuple[Path, list[list[Any]]]) -> None:
    with pytest.raises(
        RecipeError, match=r"trained by 2 process\(es\) up to step [56], now there are 1"
    ):
        mops.train(recipe_of(), ended[0] / "half")


# ------------------------------------------------------------------ one process by itself


def test_processes_share_the_cores_of_their_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mops.training.machine.cores", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # torchrun sets it by itself
    for key, value in {"MASTER_ADDR": "here", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(key, value)
    prepare_machine(Training(device="cpu"))
    assert torch.get_num_threads() == 2
    monkeypatch.delenv("MASTER_ADDR")  # a variable of that name alone means nothing
    prepare_machine(Training(device="cpu"))
    assert torch.get_num_threads() == 1


def test_each_has_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"MASTER_ADDR": "here", "WORLD_SIZE": "4", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr("mops.training.machine.choose_device", lambda name: name)
    assert prepare_machine(Training(device="cuda", threads=1)) == "cuda:3"
    with pytest.raises(UsageError, match="set the device cpu"):
        prepare_machine(Training(device="mps", threads=1))


def test_dropout_differs_between_processes() -> None:
    """torch's generator keeps 32 bits of a seed."""
    seeds = {step_seed(Training(), step, rank) % 2**32 for step in range(500) for rank in range(8)}
    assert len(seeds) == 4000
