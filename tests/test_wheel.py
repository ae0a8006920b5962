"""The wheel: built, installed into an environment of its own, and used from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import mops
from running import write_long_encoder

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[1]


def run(*command: str | Path, folder: Path) -> str:
    """A command outside this project's environment; returns what it printed."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without build isolation, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, PROJECT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel; its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = Path(
        run(python, "-c", "import site; print(site.getsitepackages()[0])", folder=folder).strip()
    )
    # A path in a .pth file: the packages there, but not the editable mops that its own .pth names.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    install = ("install", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--python", python, *install, folder=folder)
    where = run(python, "-c", "import mops; print(mops.__file__)", folder=folder)
    assert Path(where.strip()).is_relative_to(site)
    return folder / "bin"


def test_the_wheel_is_named_and_complete(wheel: Path) -> None:
    """Every file of the package that is no byte code, data files too."""
    assert wheel.name == f"mops_nlp-{mops.__version__}-py3-none-any.whl"
    source = PROJECT / "src"
    paths = (path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc")
    expected = {path.relative_to(source).as_posix() for path in paths}
    assert expected <= set(zipfile.ZipFile(wheel).namelist())


def test_plans_are_listed_and_a_folder_becomes_a_recipe(programs: Path, tmp_path: Path) -> None:
    assert "hybrid:" in run(programs / "mops", "plans", folder=tmp_path)
    assert run(programs / "mops", "--version", folder=tmp_path) == f"mops {mops.__version__}\n"
    lines = [
        "id,text,label",
        *(f"{n},text number {n},{'good' if n % 2 else 'bad'}" for n in range(40)),
    ]
    (tmp_path / "reviews-train.csv").write_text("\n".join(lines) + "\n", "utf-8")
    run(programs / "mops", "init", tmp_path, folder=tmp_path)
    assert "reviews" in (tmp_path / "mops.yaml").read_text("utf-8")


def test_three_steps_on_the_sample_and_a_report(programs: Path, tmp_path: Path) -> None:
    encoder = write_long_encoder(tmp_path / "encoder")
    options = ("--data", "sample", "--encoder", encoder, "--plan", "shared", "--out", "run")
    steps = ("--set", "training.max_steps=3", "--set", "training.threads=1")
    run(programs / "mops", "train", *options, *steps, folder=tmp_path)
    assert (tmp_path / "run" / "record.json").is_file()
    run(programs / "mops", "report", "run", folder=tmp_path)
    assert "</html>" in (tmp_path / "run" / "report.html").read_text("utf-8")
