"""The Python that the README and docs/python.md show runs, and so does the notebook."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

import mops
from running import SOURCE, one_core, run_python, write_long_encoder

ROOT = Path(__file__).parent.parent.parent
NOTEBOOK = ROOT / "docs" / "tutorials" / "python.ipynb"
SHORT = 'plan=["shared", "hybrid:1"], seeds=1, max_steps=4'
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = "the printer of our team is broken again please help invoice amount login fails"
WORDS = TEXT.split()


def shown(page: str) -> str:
    return CODE.findall((ROOT / page).read_text("utf-8"))[0]


def prepare(folder: Path) -> None:
    """`tickets.csv` and a tiny encoder."""
    pandas, draw = pytest.importorskip("pandas"), random.Random(0)
    rows = [
        {"body": " ".join(draw.choices(WORDS, k=9)), "urgency": draw.randint(1, 4),
         "mood": draw.choice(["calm", "angry"])}
        for _ in range(80)
    ]  # fmt: skip
    pandas.DataFrame(rows).to_csv(folder / "tickets.csv", index=False)
    write_long_encoder(folder / "encoder")


def shorter(code: str) -> str:
    """The same with the tiny encoder and a few steps; everything else as it is written."""
    tiny = 'data=frame, encoder="encoder", set={"training.threads": 1}'
    changed = code.replace("data=frame", tiny).replace('budget="30m"', SHORT)
    assert changed.count("encoder=") == changed.count("max_steps=") == 1
    return changed


@pytest.mark.slow
def test_the_lines_of_the_page_run_as_a_plain_script(tmp_path: Path) -> None:
    """From a DataFrame to predictions; nothing is trained twice, and the script runs once."""
    code = shown("docs/python.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    prepare(tmp_path)
    (tmp_path / "script.py").write_text('print("begun")\n' + shorter(code), "utf-8")
    with one_core():
        done = run_python("-W", "error", "script.py", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("begun") == 1 and "[80 rows x 11 columns]" in done.stdout
        assert "its cost was not measured" not in done.stdout + done.stderr
        records = sorted((tmp_path / "surveys" / "tickets" / "trials").glob("*/record.json"))
        written = [record.stat().st_mtime_ns for record in records]
        again = run_python("script.py", cwd=tmp_path)
    assert len(records) == 2 and again.returncode == 0, again.stderr
    assert [record.stat().st_mtime_ns for record in records] == written
    assert (tmp_path / "surveys" / "tickets" / "report.html").is_file()


@pytest.mark.slow
def test_the_lines_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    with one_core():
        exec(compile(shorter(shown("README.md")), "README.md", "exec"), found)
    assert isinstance(found["survey"], mops.SurveyRun)
    assert "[80 rows x 8 columns]" in capsys.readouterr().out
    assert found["model"].tasks == ("urgency", "mood")


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a kernel of its own, with the real encoder, to the answer of the server."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    for name, value in {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    folder = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=900, resources=folder).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pages = "\n".join(output.get("data", {}).get("text/html", "") for output in outputs)
    assert "first-look: scores" in pages and "sentiment.4" in pages and "open the report" in pages
    (answers,) = (o["data"]["text/plain"] for o in outputs if "'sentiment'" in str(o.get("data")))
    assert "probabilities" in answers and "prediction" in answers
    assert any((tmp_path / "mops-data").iterdir())
