"""The container files: what may not be in them, and that what they run is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import pytest

from mops import __version__
from mops.cli.main import cli
from mops.yaml_io import read_yaml
from running import run_python

ROOT = Path(__file__).parent.parent.parent
STEPS = [
    (line.split()[0], line.split(maxsplit=1)[1])
    for line in re.sub(
        r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"))
    ).splitlines()
    if line.strip()
]
STARTS = [n for n, (word, _) in enumerate(STEPS) if word == "FROM"]
LAST = dict(STEPS[STARTS[-1] :])  # of the stage that is the image


def words(step: str) -> list[str]:
    """A command in exec form; a shell form would be no JSON."""
    found: list[str] = json.loads(step.removeprefix(step[: step.index("[")]))
    return found


def service() -> Any:
    return read_yaml(ROOT / "compose.yaml")["services"]["mops"]


def test_images_have_tags_and_come_from_no_named_host() -> None:
    images = [STEPS[n][1].split()[0] for n in STARTS]
    for image in (*images, service()["image"]):
        name, _, tag = image.rpartition(":")
        assert re.fullmatch(r"[a-z-]+", name)
        assert re.fullmatch(r"\d+\.\d+[a-z.-]*", tag)
    assert service()["image"] == f"mops-nlp:{'.'.join(__version__.split('.')[:2])}"
    text = (ROOT / "Dockerfile").read_text("utf-8") + (ROOT / "compose.yaml").read_text("utf-8")
    assert set(re.findall(r"https?://([\w.-]+)", text)) == {"127.0.0.1"}


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    kept = [line.removeprefix("!") for line in lines if line.startswith("!")]
    sources = [
        name
        for word, rest in STEPS
        if word == "COPY" and "--from" not in rest
        for name in rest.split()[:-1]
    ]
    assert sources
    for name in sources:
        assert (ROOT / name).exists()
        assert any(fnmatch(name, pattern) for pattern in kept)
    assert (ROOT / read_project("readme")).name in sources  # hatchling reads both
    assert "LICENSE" in sources


def test_it_serves_models_and_exported_folders() -> None:
    """With the packages of both, by the names that pyproject.toml gives them."""
    (install,) = [rest for word, rest in STEPS if word == "RUN" and " install " in rest]
    extras = re.findall(r"/source\[([a-z,]+)\]", install)[0].split(",")
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert set(extras) == {"serve", "onnx"} <= set(re.findall(r"(?m)^(\w+) = \[", text))


def read_project(key: str) -> str:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    (value,) = re.findall(rf'(?m)^{key} = "(.+)"', text)
    return str(value)


def test_it_runs_as_a_user_without_rights() -> None:
    assert int(LAST["USER"]) >= 1000
    order = [word for word, _ in STEPS[STARTS[-1] :]]
    assert order.index("USER") > max(n for n, word in enumerate(order) if word in ("RUN", "COPY"))
    assert not any(word == "ADD" or "sudo" in rest for word, rest in STEPS)


def test_the_command_is_one_of_mops() -> None:
    name, command, *options = [*words(LAST["ENTRYPOINT"]), *words(LAST["CMD"])]
    assert name == "mops"
    parent = click.Context(cli, **cli.context_settings)
    found = cli.get_command(parent, command)
    assert found is not None
    given = found.make_context(command, options, parent=parent).params
    assert (given["model"], given["host"]) == (Path("/model"), "0.0.0.0")
    assert str(given["port"]) == LAST["EXPOSE"]


def test_compose_gives_it_nothing_to_write_and_no_other_network() -> None:
    own = service()
    assert own["read_only"] is True
    assert own["tmpfs"] == ["/tmp"]
    assert own["cap_drop"] == ["ALL"]
    assert own["security_opt"] == ["no-new-privileges:true"]
    assert all(volume.endswith(":ro") for volume in own["volumes"])
    assert all(port.startswith("127.0.0.1:") for port in own["ports"])
    assert own["healthcheck"]["test"] == ["CMD", *words(LAST["HEALTHCHECK"])]
    written = [value for value in LAST["ENV"].split() if value.startswith(("HOME", "MPL", "MOPS"))]
    assert len(written) == 3
    assert all(value.partition("=")[2].startswith("/tmp") for value in written)


@pytest.mark.slow
def test_the_health_check_asks_a_running_server(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    from serving import RunningSurvey, served

    from mops.serve.survey import SurveyService, build_survey_app

    _, option, code = words(LAST["HEALTHCHECK"])
    app = build_survey_app(SurveyService(RunningSurvey(tmp_path).folder))
    with served(app) as address:
        code = code.replace("http://127.0.0.1:8000", address)
        assert run_python(option, code).returncode == 0
    assert run_python(option, code).returncode != 0


def has_docker() -> bool:
    if not shutil.which("docker"):
        return False
    found = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=60)
    return found.returncode == 0


@pytest.mark.slow
def test_the_image_is_built() -> None:
    if not has_docker():
        pytest.skip("no container tool: `docker info` does not work here")
    command = ["docker", "build", "--tag", service()["image"], str(ROOT)]
    assert subprocess.run(command, check=False).returncode == 0
    shown = subprocess.run(
        ["docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", service()["image"], "--help"],
        capture_output=True,
        check=False,
    )
    assert shown.returncode == 0
    assert b"Answer requests" in shown.stdout
