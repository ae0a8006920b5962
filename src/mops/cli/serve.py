"""`mops serve`"""

import math
import os
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.core import ParameterSource

import mops
from mops.cli.options import BACKEND, COUNT, DEVICE, PATH, TIME, find_model
from mops.errors import UsageError

OF_SURVEYS = ("survey", "host", "port")  # the options that --survey reads


@click.command()
@click.argument("model", type=PATH, required=False)
@click.option("--survey", type=PATH, metavar="DIR",
              help="Show the race of a survey, also while it trains.")  # fmt: skip
@click.option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0: all.")
@click.option("--port", default=8000, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option("--workers", default=1, type=COUNT, help="Processes (Linux); they share the weights.")
@click.option("--max-items", default=1000, type=COUNT, help="Items in a request.")
@click.option("--max-characters", default=20_000, type=COUNT, help="Characters of a text.")
@click.option("--max-body", default=4 * 2**20, type=COUNT, help="Bytes of a request.")
@click.option("--max-waiting", default=4000, type=COUNT, help="Items that wait, of all requests.")
@click.option("--timeout", default="60s", metavar="TIME", callback=TIME, help="For a request.")
@click.option("--batch-tokens", default=2048, type=COUNT, help="Tokens computed together.")
@click.option("--wait", default="2ms", metavar="TIME", callback=TIME,
              help="How long an idle server waits for further requests.")  # fmt: skip
@DEVICE
@BACKEND
def command(model: Path | None, survey: Path | None, workers: int, **options: Any) -> None:
    """Answer requests over HTTP with a trained model, or show a running survey.

    POST /predict takes {"items": [{"text": ..., "text_pair": ...}], "tasks": [...]}; GET /tasks,
    /plan, /health, /ready, /metrics and /docs describe the server, and / is a page to try the
    model. With --survey, / shows who is ahead and what is training, and GET /survey has the same
    as JSON; nothing in the folder is changed. If the environment variable MOPS_API_KEY is set,
    clients must send it as `Authorization: Bearer KEY`.

    \b
    Example:
      mops serve runs/first/model
      curl -H 'content-type: application/json' -d '{"items": [{"text": "A lovely film."}]}' \\
           http://127.0.0.1:8000/predict
      mops serve --survey surveys/first
    """
    if (model is None) == (survey is None):
        raise UsageError(
            "mops serve takes the folder of a model, or --survey with the folder of a survey: "
            f"one of both, found {'neither' if model is None else 'both'}"
        )
    if survey is not None:
        refuse_idle_options()
    place = {"host": options.pop("host"), "port": options.pop("port")}
    refuse_taken(**place)
    if model is not None:
        refuse_limits(**options)
        where = find_model(model, options.pop("device"), options.pop("backend"))
        if workers > 1:
            prepare_workers(workers, where[1])
    try:
        from mops.serve.app import Limits, Service, build_app
        from mops.serve.survey import SurveyService, build_survey_app
        from mops.serve.workers import serve
    except ModuleNotFoundError as cause:
        raise UsageError(
            f"mops serve needs {cause.name}, not installed here; pip install 'mops-nlp[serve]'"
        ) from cause
    api_key = os.environ.get("MOPS_API_KEY", "")
    if survey is not None:
        return serve(build_survey_app(SurveyService(survey), api_key), **place)
    patience = math.ceil(options["timeout"]) + 1  # for requests that were accepted
    app = build_app(Service(mops.load(*where), Limits(**options), api_key))
    return serve(app, workers=workers, timeout_graceful_shutdown=patience, **place)


def refuse_idle_options() -> None:
    """What is given on the command line and says nothing about a survey."""
    context = click.get_current_context()
    idle = [
        option.opts[0]
        for option in context.command.params
        if option.name not in OF_SURVEYS
        and context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    ]
    if idle:
        raise UsageError(
            f"{', '.join(idle)}: without effect with --survey, which computes no answers; leave "
            "them out"
        )


def refuse_taken(host: str, port: int) -> None:
    """Before a model is loaded, which takes seconds."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as cause:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {cause.strerror}; choose others with --host "
            "and --port"
        ) from cause


def refuse_limits(*, max_waiting: int, max_items: int, **_: Any) -> None:
    if max_waiting < max_items:
        raise UsageError(
            f"--max-waiting {max_waiting} is less than --max-items {max_items}: such a request "
            "would never be answered"
        )


def prepare_workers(count: int, device: str) -> None:
    """Where the counters of all workers meet; prometheus_client reads it when it is imported."""
    if sys.platform != "linux" or device != "cpu":
        raise UsageError(
            f"--workers {count}: several workers need Linux and the device cpu, where a process "
            f"with torch can be forked, found {sys.platform} and {device}; start a server for "
            "each port instead"
        )
    folder = TemporaryDirectory(prefix="mops-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = click.get_current_context().with_resource(folder)
