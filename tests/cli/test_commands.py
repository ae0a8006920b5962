"""The commands as a person types them."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

import mops
from layouts import LAYOUTS
from mops.cli.main import COMMANDS
from mops.yaml_io import format_yaml, parse_yaml
from running import World, bundle_scores, run_python

NAMES = ("sentiment", "paraphrase", "similarity")


# ------------------------------------------------------------------ help


def test_help_lists_every_command_with_what_it_does(run_cli: Any) -> None:
    code, out, err = run_cli("--help")
    assert (code, err) == (0, "")
    for name, about in COMMANDS.items():
        assert f"  {name}" in out and about in out


def test_no_arguments_show_the_help(run_cli: Any) -> None:
    code, out, err = run_cli()
    assert code in (0, 2)
    assert "Commands:" in out + err and not err.startswith("mops: error")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_an_example_of_it(run_cli: Any, name: str) -> None:
    code, out, _ = run_cli(name, "--help")
    assert code == 0
    example = out.partition("Example:")[2].split("Options:")[0]
    assert f"mops {name}" in example


@pytest.mark.parametrize("words", [("--help",), ("plans",), ("check", "--data", "sample")])
def test_light_commands_do_not_load_torch(words: tuple[str, ...], made: World) -> None:
    encoder = () if words == ("--help",) else ("--encoder", str(made.encoder))
    program = (
        "import sys\nsys.argv[0] = 'mops'\nfrom mops.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = run_python("-c", program, *words, *encoder)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_help_is_fast() -> None:
    """Less than 0.4 seconds of processor time; the best of three, because machines are busy."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "mops", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) < 0.4


def test_version(run_cli: Any) -> None:
    code, out, _ = run_cli("--version")
    assert code == 0 and out.startswith("mops 0.")


@pytest.mark.parametrize(("word", "meant"), [("trian", "train"), ("evla", "eval")])
def test_an_unknown_command_names_the_nearest(run_cli: Any, word: str, meant: str) -> None:
    code, out, err = run_cli(word)
    assert (code, out) == (2, "")
    assert f"no command {word!r}" in err and f"Did you mean {meant!r}?" in err
    assert err.count("\n") == 1


def test_debug_shows_the_traceback(run_cli: Any) -> None:
    code, _, err = run_cli("plans", "nonsense", "--debug")
    assert code == 2 and "Traceback" in err and "PlanError" in err
    assert "Traceback" not in run_cli("plans", "nonsense")[2]


# ------------------------------------------------------------------ plans


def test_plans_lists_them_with_sizes(run_cli: Any, made: World) -> None:
    code, out, _ = run_cli("plans", "--encoder", str(made.encoder))
    assert code == 0
    for short in ("shared", "separate", "hybrid:1", "late:"):
        assert short in out
    listed = json.loads(run_cli("plans", "--encoder", str(made.encoder), "--json")[1])
    for facts in listed:
        assert facts["parameters"]["total"] == sum(facts["parameters"]["per_owner"].values())
        assert facts["name"] in out


def test_one_plan_is_drawn(run_cli: Any, made: World) -> None:
    code, out, _ = run_cli("plans", "hybrid:1", "--encoder", str(made.encoder))
    assert code == 0 and "same letter in a column = same weights" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line[:4] in
            ("sent", "para", "simi")}  # fmt: skip
    assert rows["sentiment"] == ["A", "A", "A", "A", "A"]
    assert rows["paraphrase"] == ["A", "A", "B", "B", "B"]
    facts = json.loads(run_cli("plans", "hybrid:1", "--encoder", str(made.encoder), "--json")[1])
    assert facts["name"] == "hybrid:1"


# ------------------------------------------------------------------ check and init


def test_check_describes_the_data(run_cli: Any, made: World) -> None:
    code, out, _ = run_cli("check", *made.options())
    assert code == 0
    assert "sentiment (classification)" in out and "row 1: " in out
    assert "8 steps" in out and "parameters" in out and "passes" in out


def test_check_as_json_agrees_with_the_run(run_cli: Any, made: World) -> None:
    code, out, _ = run_cli(
        "check", *made.options("--plan", "hybrid:1", "--recipe", "plain", "--json")
    )
    found, record = json.loads(out), mops.read_record(made.run / "record.json")
    assert code == 0
    assert found["plan"]["parameters"] == record.costs.parameters
    assert found["schedule"]["steps"] == record.train_info.planned_steps
    for name in NAMES:
        facts = record.train_info.tasks[name]
        assert found["schedule"]["tasks"][name]["batches"] == facts.batches
        assert found["tasks"][name]["splits"]["train"]["rows"] == facts.rows
        assert len(found["tasks"][name]["samples"]) == 3
    assert found["estimate"]["seconds"] > 0


def test_check_measures_lengths_before_truncation(run_cli: Any, made: World) -> None:
    def lengths(most: int) -> dict[str, dict[str, float]]:
        words = made.options("--set", f"training.max_length={most}", "--json")
        return dict(json.loads(run_cli("check", *words)[1])["tokens"])

    whole, cut = lengths(64), lengths(5)
    for task in NAMES:
        assert not whole[task]["cut"] and cut[task]["cut"] and cut[task]["max_length"] == 5
        assert all(cut[task][key] == whole[task][key] for key in ("p50", "p95", "max"))


def test_check_refuses_what_train_would_refuse(run_cli: Any, made: World) -> None:
    """More tokens than the encoder has positions for."""
    words = made.options("--set", "training.max_length=4000")
    assert run_cli("check", *words)[0] == run_cli("train", *words)[0] == 2


def test_init_writes_a_recipe_that_check_and_train_take(
    run_cli: Any, made: World, tmp_path: Path
) -> None:
    data = tmp_path / "mine"
    data.mkdir()
    for split, file in (("train", "train"), ("dev", "dev"), ("test", "test-student")):
        shutil.copy(made.data / f"ids-sst-{file}.csv", data / f"reviews-{split}.csv")
        shutil.copy(made.data / f"sts-{file}.csv", data / f"pairs-{split}.csv")
    (data / "notes.pdf").write_bytes(b"%PDF")
    code, out, err = run_cli("init", str(data))
    assert code == 0 and "2 tasks: pairs, reviews" in out and "notes.pdf" in err
    config = data / "mops.yaml"
    assert parse_yaml(config.read_text())["tasks"]["pairs"]["type"] == "similarity"
    words = ["--config", str(config), "--encoder", str(made.encoder)]
    assert run_cli("check", *words)[0] == 0
    quick = ["--set", "training.max_steps=2", "--out", str(tmp_path / "run")]
    assert run_cli("train", *words, *quick)[0] == 0
    code, _, err = run_cli("init", str(data))
    assert code == 2 and "exists already" in err


def test_what_init_writes_is_checked_trained_and_verified_as_it_is(
    run_cli: Any, made: World, tmp_path: Path
) -> None:
    """Columns by content, a split column, decimal commas, and a file that is no task."""
    names = ("tickets", "split column", "excel, semicolons and decimal commas", "constant label")
    for layout in LAYOUTS:
        if layout.name in names:
            layout.write(tmp_path)
    code, out, err = run_cli("init", str(tmp_path))
    assert code == 0 and "tasks: all, noten, urgency" in out
    assert "skipped constant.csv: no label column" in err
    config = ["--config", str(tmp_path / "mops.yaml")]
    assert "# left out:\n  #  constant.csv: no label" in (tmp_path / "mops.yaml").read_text()
    options = ["--encoder", str(made.encoder), "--set", "training.max_steps=2"]
    code, out, _ = run_cli("check", *config, *options, "--json")
    splits = json.loads(out)["tasks"]["all"]["splits"]
    assert code == 0 and {split: read["rows"] for split, read in splits.items()} == {
        "train": 20, "validation": 10, "test": 10
    }  # fmt: skip
    assert run_cli("train", *config, *options, "--out", str(tmp_path / "run"))[0] == 0
    assert run_cli("eval", str(tmp_path / "run" / "model"), "--verify")[0] == 0


def test_init_recognises_a_known_layout(run_cli: Any, made: World, tmp_path: Path) -> None:
    code, out, _ = run_cli("init", str(made.data), "--out", str(tmp_path / "mops.yaml"))
    assert code == 0 and "3 tasks" in out
    words = ["--config", str(tmp_path / "mops.yaml"), "--encoder", str(made.encoder)]
    assert run_cli("check", *words)[0] == 0


# ------------------------------------------------------------------ train


def test_train_has_a_good_recipe_unless_the_file_has_its_own(run_cli: Any, tmp_path: Path) -> None:
    def trained(*words: str) -> dict[str, Any]:
        code, out, err = run_cli("train", "--dry-run", *words)
        assert code == 0, err
        return cast("dict[str, Any]", parse_yaml(out)["training"])

    good, best = trained("--data", "sample"), trained("--data", "sample", "--recipe", "best")
    assert good["schedule"] == "mixed" and best["num_train_epochs"] > good["num_train_epochs"]
    entries = mops.recipe(data="sample").to_data()["tasks"]
    own = tmp_path / "mops.yaml"
    own.write_text(format_yaml({"tasks": entries, "training": {"max_steps": 5}}), "utf-8")
    assert trained("--config", str(own))["schedule"] == "together"
    assert trained("--config", str(own), "--recipe", "good")["max_steps"] == 5


def test_more_training_files_on_the_command_line(run_cli: Any, tmp_path: Path) -> None:
    for given, weight in (("sentiment=a@b.csv", 1.0), ("sentiment=a@b.csv@0.5", 0.5)):
        words = ("--data", "sample", "--more-train", given, "--dry-run")
        files = parse_yaml(run_cli("train", *words)[1])["tasks"]["sentiment"]["train"]
        assert [Path(file).name for file in files] == ["sentiment-train.csv", "a@b.csv"]
        assert list(files.values()) == [1.0, weight]
    code, _, err = run_cli("train", "--data", "sample", "--more-train", "sentiment")
    assert code == 2 and "write TASK=FILE" in err


def test_a_dry_run_prints_the_recipe_and_writes_nothing(
    run_cli: Any, made: World, tmp_path: Path
) -> None:
    out_folder = tmp_path / "run"
    words = made.options("--plan", "late:SI", "--dry-run", "--out", str(out_folder))
    code, out, _ = run_cli("train", *words)
    assert code == 0 and not out_folder.exists()
    found = parse_yaml(out)
    assert found["plan"] == "late:SI" and found["training"]["max_steps"] == 8


def test_options_are_keys_of_the_recipe(run_cli: Any, made: World) -> None:
    words = made.options("--tasks", "similarity,sentiment", "--seed", "5", "--dry-run")
    found = parse_yaml(run_cli("train", *words, "--set", "training.learning_rate=2e-4")[1])
    assert list(found["tasks"]) == ["similarity", "sentiment"]
    assert found["training"]["learning_rate"] == 2e-4
    assert found["training"]["seed"] == 3  # --set comes after --seed, and the world sets it


def test_train_shows_scores_and_where_things_are(
    run_cli: Any, made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = made.options("--plan", "hybrid:1", "--tasks", "sentiment")
    code, out, err = run_cli("train", *words)
    assert code == 0
    assert "overall_normalised" in out and "report" in out and "parameters" in out
    assert "step 4: overall" in err and "warning: " in err
    folder = tmp_path / "runs" / "hybrid-1-3"  # the default: runs/PLAN-SEED
    assert (folder / "record.json").is_file()
    code, out, _ = run_cli("train", *words)
    assert code == 0 and "already holds this finished run" in out
    code, out, _ = run_cli("train", *words, "--json")
    assert json.loads(out) == json.loads((folder / "record.json").read_text())


def test_train_prints_the_budget_of_each_task_before_it_starts(
    run_cli: Any, made: World, tmp_path: Path
) -> None:
    words = made.options("--tasks", "sentiment,similarity", "--out", str(tmp_path / "run"))
    code, _, err = run_cli(
        "train", *words, "--recipe", "plain", "--set", "training.task_steps={sentiment: 2}"
    )
    assert code == 0
    said = " ".join(err.split())
    assert "shared: sentiment: planned batches 2, rows 8, passes 0.13" in said
    assert "shared: similarity: planned batches 8, rows 32, passes 1.60" in said
    doubt = "sentiment: only 2 batches planned, 0.13 passes over its 60 rows"
    assert said.index(doubt) < said.index("step 4: overall")
    words = made.options("--json", "--recipe", "plain", training__max_steps=2)
    check = json.loads(run_cli("check", *words)[1])
    assert check["schedule"]["tasks"]["sentiment"]["examples"] == 8
    assert "sentiment: only 2 batches planned" in check["warnings"][0]


def test_another_recipe_in_a_taken_folder_exits_2_and_names_the_key(
    run_cli: Any, made: World
) -> None:
    words = made.options("--plan", "hybrid:1", "--recipe", "plain", training__max_steps=9)
    code, _, err = run_cli("train", *words, "--out", str(made.run))
    assert code == 2 and "training.max_steps: 8 there, 9 here" in err


# ------------------------------------------------------------------ eval


def test_eval_agrees_with_the_record_to_the_last_digit(
    run_cli: Any, made: World, model: str
) -> None:
    code, out, _ = run_cli("eval", model, "--json")
    assert code == 0
    assert json.loads(out) == bundle_scores(made.run)
    code, out, _ = run_cli("eval", model)
    assert code == 0 and "overall_normalised" in out


def test_eval_on_other_data_and_some_tasks(run_cli: Any, made: World, model: str) -> None:
    words = ("--data", str(made.data), "--tasks", "similarity", "--json")
    code, out, _ = run_cli("eval", model, *words)
    found = json.loads(out)["tasks"]
    assert code == 0 and found == {"similarity": bundle_scores(made.run)["tasks"]["similarity"]}
    code, _, err = run_cli("eval", model, "--data", "nowhere")
    assert code == 2 and "nowhere" in err
