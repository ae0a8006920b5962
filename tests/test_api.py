"""The package as others import it."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import mops
from running import run_python, world


def test_every_public_name_is_there_and_documented() -> None:
    assert mops.__all__ == sorted(mops.__all__)
    for name in mops.__all__:
        assert getattr(mops, name).__doc__, name


def test_nothing_else_is_public() -> None:
    """Modules of the package, imports of its first lines and names with `_` are no interface."""
    tree = ast.parse(Path(mops.__file__).read_text("utf-8"))
    homes = importlib.import_module("mops")._HOMES
    assert sorted(homes) == mops.__all__
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert defined == {"__getattr__"}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mops.nonsense  # noqa: B018


def test_the_names_for_type_checkers_are_the_public_ones() -> None:
    tree = ast.parse(Path(mops.__file__).read_text("utf-8"))
    branch = next(node for node in tree.body if isinstance(node, ast.If))
    named = {
        alias.asname or alias.name
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert named == set(mops.__all__)


def test_import_is_light_and_silent() -> None:
    program = (
        "import sys, mops\n"
        "heavy = {'torch', 'transformers', 'numpy', 'click', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "mops.recipe, mops.Recipe, mops.read_plan, mops.read_record\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = run_python("-W", "error", "-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_lines_in_the_docstring_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a tiny encoder and fewer steps; everything else as it is written."""
    code = (mops.__doc__ or "").partition("\n\n")[2]
    assert len([line for line in code.splitlines() if line.strip()]) == 6
    tiny = f'set={{"training.max_steps": 2, "encoder": {str(world().encoder)!r}, '
    tiny += '"training.threads": 1}'
    shorter = code.replace('set={"training.max_steps": 60}', tiny)
    assert shorter != code
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mops.evaluate.metrics.RESAMPLES", 5)
    exec(compile(shorter, "docstring", "exec"), {})
    overall, answers = capsys.readouterr().out.splitlines()
    assert set(ast.literal_eval(overall)) == {"overall", "overall_normalised"}
    assert len(ast.literal_eval(answers)) == 2


def test_errors_are_one_family() -> None:
    from mops import errors

    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    assert len(kinds) >= 8
    for kind in kinds:
        assert issubclass(kind, mops.MopsError)
        assert kind.exit_code == (2 if issubclass(kind, errors.UsageError) else 1)
