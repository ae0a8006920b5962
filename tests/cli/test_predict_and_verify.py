"""`mops predict` and `mops eval --verify` reproduce the predictions and scores of the run."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import mops
from mops.api.progress import ProgressBar
from mops.yaml_io import format_yaml, parse_yaml
from running import World, bundle_scores

FILES = {"sentiment": "ids-sst", "paraphrase": "quora", "similarity": "sts"}
COURSE = {
    "sst": ("sentiment", "Predicted_Sentiment"),
    "para": ("paraphrase", "Predicted_Is_Paraphrase"),
    "sts": ("similarity", "Predicted_Similiary"),
}


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def written(made: World, task: str, split: str) -> list[dict[str, str]]:
    return table((made.run / "predictions" / f"{task}-{split}.csv").read_text())


# ------------------------------------------------------------------ verify


def test_verify_passes_on_an_untouched_model(run_cli: Any, model: str) -> None:
    code, out, _ = run_cli("eval", model, "--verify")
    assert code == 0 and "verified" in out


def test_verify_fails_on_other_weights(run_cli: Any, model: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    (copy / "manifest.json").unlink()
    weights = load_file(copy / "model.safetensors")
    weights["head/similarity.output.weight"].neg_()
    weights["head/sentiment.output.bias"].add_(99.0 * (weights["head/sentiment.output.bias"] < 0))
    save_file(weights, copy / "model.safetensors")
    code, _, err = run_cli("eval", str(copy), "--verify")
    assert code == 1
    assert err.startswith("mops: error: ") and "are not reproduced" in err


def test_the_bundle_alone_can_be_verified(
    run_cli: Any, made: World, model: str, tmp_path: Path
) -> None:
    """Everything of the run but model/ was deleted."""
    shutil.copytree(model, tmp_path / "run" / "model")
    code, out, _ = run_cli("eval", str(tmp_path / "run" / "model"), "--verify", "--json")
    assert code == 0
    assert json.loads(out) == bundle_scores(made.run)


def test_a_task_that_was_not_trained_does_not_count_at_eval_either(
    run_cli: Any, made: World, tmp_path: Path
) -> None:
    recipe = made.recipe("shared", training__schedule="in-turn", training__max_steps=2)
    run = mops.train(recipe, tmp_path / "run")
    assert run.scores.untrained
    found = json.loads(run_cli("eval", str(run.folder / "model"), "--json")[1])
    assert found["overall"] == bundle_scores(run.folder)["overall"]


def test_data_that_is_gone_is_named_with_the_way_out(
    run_cli: Any, made: World, model: str, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    text = (copy / "tasks.yaml").read_text()
    (copy / "tasks.yaml").write_text(text.replace(str(made.data), "/gone"))
    (copy / "manifest.json").unlink()
    code, _, err = run_cli("eval", str(copy))
    assert code == 2 and "/gone" in err and "--data DIR" in err
    assert run_cli("eval", str(copy), "--data", str(made.data), "--verify")[0] == 0


SECRET = "sentence\tsentiment\nthe secret words\t7\n"


@pytest.mark.parametrize("command", [("eval",), ("predict", "--cs224n", "{out}")])
@pytest.mark.parametrize("named", ["{file}", "hub:someone/data:train", "/dev/zero"])
def test_files_that_only_a_bundle_names_are_not_read(
    run_cli: Any, model: str, tmp_path: Path, named: str, command: tuple[str, ...]
) -> None:
    """A stranger's bundle names a file of mine, a hub or a device; nothing of it is shown."""
    (tmp_path / "secret.csv").write_text(SECRET)
    copy, file = Path(shutil.copytree(model, tmp_path / "model")), str(tmp_path / "secret.csv")
    entries = parse_yaml((copy / "tasks.yaml").read_text())
    entries["sentiment"] |= dict.fromkeys(("validation", "test"), named.format(file=file))
    (copy / "tasks.yaml").write_text(format_yaml(entries))
    (copy / "manifest.json").unlink()
    first, *options = (word.format(out=tmp_path / "out") for word in command)
    code, out, err = run_cli(first, str(copy), *options)
    assert code == 2 and err.count("\n") == 1 and "--data DIR" in err, err
    assert "secret words" not in out + err and "'7'" not in out + err


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="only Linux has it")
@pytest.mark.parametrize("has_sizes", [True, False])
def test_files_of_the_system_that_never_end_are_not_read(
    run_cli: Any, model: str, tmp_path: Path, has_sizes: bool
) -> None:
    other = Path(shutil.copytree(model, tmp_path / "model"))
    (other / "manifest.json").unlink()
    tasks = (other / "tasks.yaml").read_text()
    dev = next(line for line in tasks.splitlines() if "ids-sst-dev.csv" in line).split(": ")[1]
    (other / "tasks.yaml").write_text(tasks.replace(dev, "/proc/self/pagemap"))
    config = json.loads((other / "config.json").read_text())
    for split in config["data"]["sentiment"].values():
        assert split["bytes"][0] > 0
        split["bytes"] = split["bytes"] if has_sizes else []
    (other / "config.json").write_text(json.dumps(config))
    code, _, err = run_cli("eval", str(other))
    assert code == 2 and "pagemap is not the file that the model was trained on" in err


def test_without_recorded_digests_no_file_is_read(run_cli: Any) -> None:
    fixture = Path(__file__).parents[1] / "fixtures/run/model"
    code, _, err = run_cli("eval", str(fixture))
    assert code == 2 and "records no digests" in err and "--data DIR" in err
    assert run_cli("eval", str(fixture), "--data", str(fixture.parents[1] / "data"))[0] == 0


# ------------------------------------------------------------------ predict


@pytest.mark.parametrize("task", FILES)
@pytest.mark.parametrize(("split", "file"), [("validation", "dev"), ("test", "test-student")])
def test_predict_agrees_with_the_run_to_the_last_digit(
    run_cli: Any, made: World, model: str, task: str, split: str, file: str
) -> None:
    source = made.data / f"{FILES[task]}-{file}.csv"
    code, out, _ = run_cli("predict", model, str(source), "--task", task)
    assert code == 0
    expected = [(row["id"], row["prediction"]) for row in written(made, task, split)]
    assert [(row["id"], row["prediction"]) for row in table(out)] == expected


def test_without_a_task_all_that_read_these_columns_answer(
    run_cli: Any, made: World, model: str
) -> None:
    code, out, _ = run_cli("predict", model, str(made.data / "sts-dev.csv"))
    rows = table(out)
    assert code == 0 and list(rows[0]) == ["id", "paraphrase", "similarity"]
    expected = [row["prediction"] for row in written(made, "similarity", "validation")]
    assert [row["similarity"] for row in rows] == expected


def test_standard_input(run_cli: Any, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'sentence\nban bat\n"bet, ben"\n'
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    code, out, _ = run_cli("predict", model, "-")
    rows = table(out)
    assert code == 0 and [row["id"] for row in rows] == ["1", "2"]
    expected = mops.load(model).predict("sentiment", ["ban bat", "bet, ben"])
    assert [row["prediction"] for row in rows] == expected


def test_other_columns_can_be_named(run_cli: Any, model: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"review": "ban bat", "id": "x7"}\n')
    code, out, _ = run_cli("predict", model, str(tmp_path / "in.jsonl"), "--text", "review")
    assert code == 0 and table(out)[0]["id"] == "x7"
    code, _, err = run_cli("predict", model, str(tmp_path / "in.jsonl"))
    assert code == 2 and "review" in err and "as `text`" in err
    two = ("--text", "review", "--text", "id")
    code, out, _ = run_cli("predict", model, str(tmp_path / "in.jsonl"), *two)
    assert code == 0 and list(table(out)[0]) == ["id", "paraphrase", "similarity"]


def test_out_writes_the_same_to_a_file(
    run_cli: Any, made: World, model: str, tmp_path: Path
) -> None:
    source, out_file = str(made.data / "sts-dev.csv"), tmp_path / "new" / "answers.csv"
    code, out, _ = run_cli("predict", model, source, "--out", str(out_file))
    assert (code, out) == (0, "")
    assert out_file.read_text() == run_cli("predict", model, source)[1]
    assert [path.name for path in out_file.parent.iterdir()] == ["answers.csv"]


def test_an_input_is_never_the_output(
    run_cli: Any, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever names lead to it."""
    source, link, other = (tmp_path / name for name in ("in.csv", "link.csv", "other.csv"))
    source.write_text("sentence\nban bat\n")
    link.symlink_to(source)
    other.hardlink_to(source)
    monkeypatch.chdir(tmp_path)
    for out in (source, Path("in.csv"), link, other, tmp_path):
        code, _, err = run_cli("predict", model, str(source), "--out", str(out))
        assert code == 2 and "an input" in err
        assert source.read_text() == "sentence\nban bat\n"


def test_json_lines_have_the_shares(run_cli: Any, made: World, model: str) -> None:
    source = str(made.data / "sts-dev.csv")
    code, out, _ = run_cli("predict", model, source, "--json")
    lines, rows = (
        [json.loads(line) for line in out.splitlines()],
        table(run_cli("predict", model, source)[1]),
    )
    assert code == 0 and len(lines) == len(rows) == 20
    for line, row in zip(lines, rows, strict=True):
        assert line["id"] == row["id"]
        assert line["similarity"] == {"prediction": float(row["similarity"])}
        shares = line["paraphrase"]["probabilities"]
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert max(shares, key=shares.get) == line["paraphrase"]["prediction"] == row["paraphrase"]


def test_empty_texts_are_answered_and_counted(run_cli: Any, model: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,sentence\na,ban\nb,\nc,\n")
    code, out, err = run_cli("predict", model, str(tmp_path / "in.csv"))
    assert code == 0 and [row["id"] for row in table(out)] == ["a", "b", "c"]
    assert "2 rows have a problem and were predicted anyway" in err
    assert "in.csv:3 sentence is empty" in err


def test_many_empty_texts_are_all_counted_and_the_first_ones_shown(
    run_cli: Any, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In windows of 3 rows; a row that two groups of tasks read counts once."""
    monkeypatch.setattr("mops.predict.bundle.WINDOW", 3)
    lines = "".join(f"{n},,ban,\n" for n in range(8))
    (tmp_path / "in.csv").write_text(f"id,sentence,sentence1,sentence2\n{lines}")
    code, out, err = run_cli("predict", model, str(tmp_path / "in.csv"))
    assert code == 0 and len(table(out)) == 8
    assert "8 rows have a problem" in err
    assert "in.csv:2 " in err and "in.csv:4 " in err and "in.csv:5 " not in err and "..." in err


def test_tasks_with_different_columns_are_answered_side_by_side(
    run_cli: Any, model: str, tmp_path: Path
) -> None:
    """A file that has the columns of all tasks gets an answer of each, as one by one."""
    path = tmp_path / "all.csv"
    path.write_text("id,sentence,sentence1,sentence2\na,ban,ban,bin\nb,bin ban,ban,ban\n")
    code, out, _ = run_cli("predict", model, str(path))
    assert code == 0
    together = table(out)
    assert list(together[0]) == ["id", "sentiment", "paraphrase", "similarity"]
    for name in ("sentiment", "paraphrase", "similarity"):
        _, alone, _ = run_cli("predict", model, str(path), "--task", name)
        assert [row["prediction"] for row in table(alone)] == [row[name] for row in together]


def test_the_progress_bar_knows_how_many_rows_there_are(
    run_cli: Any, made: World, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = []

    class Bar(ProgressBar):
        def __init__(self, title: str, total: int | None = None) -> None:
            super().__init__(title, total)
            totals.append(total)

    monkeypatch.setattr("mops.cli.predict.ProgressBar", Bar)
    run_cli("predict", model, str(made.data / "sts-dev.csv"))
    assert totals == [21]  # lines: 20 rows and the header


def test_no_input_and_an_unknown_task_are_refused(run_cli: Any, made: World, model: str) -> None:
    code, _, err = run_cli("predict", model)
    assert code == 2 and "no input" in err
    code, _, err = run_cli("predict", model, str(made.data / "sts-dev.csv"), "--task", "sts")
    assert code == 2 and "there are sentiment, paraphrase, similarity" in err


# ------------------------------------------------------------------ the course's files


def test_the_courses_six_files(run_cli: Any, made: World, model: str, tmp_path: Path) -> None:
    """Headers and separators as the course's own code writes them."""
    folder = tmp_path / "submission"
    code, out, _ = run_cli("predict", model, "--cs224n", str(folder))
    assert code == 0
    names = {f"{word}-{split}-output.csv" for word in COURSE for split in ("dev", "test")}
    assert {path.name for path in folder.iterdir()} == names
    assert all(name in out for name in names)
    for word, (task, header) in COURSE.items():
        for split, ours in (("dev", "validation"), ("test", "test")):
            lines = (folder / f"{word}-{split}-output.csv").read_text().splitlines()
            assert lines[0] == f"id \t {header} "
            expected = [f"{r['id']} , {r['prediction']} " for r in written(made, task, ours)]
            assert lines[1:] == expected
