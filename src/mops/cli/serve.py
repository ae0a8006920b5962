"""`mops serve`"""

import os
from pathlib import Path
from typing import Any

import click

import mops
from mops.cli.options import COUNT, DEVICE, PATH, TIME
from mops.errors import UsageError

KEY = "MOPS_API_KEY"


@click.command()
@click.argument("model", type=PATH)
@click.option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0: all.")
@click.option("--port", default=8000, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option("--max-items", default=1000, type=COUNT, help="Items in a request.")
@click.option("--max-characters", default=20_000, type=COUNT, help="Characters of a text.")
@click.option("--max-body", default=4 * 2**20, type=COUNT, help="Bytes of a request.")
@click.option("--max-waiting", default=4000, type=COUNT, help="Items that wait, of all requests.")
@click.option("--timeout", default="60s", metavar="TIME", callback=TIME, help="For a request.")
@click.option("--batch-tokens", default=4096, type=COUNT, help="Tokens computed together.")
@click.option("--wait", default="2ms", metavar="TIME", callback=TIME,
              help="How long an idle server waits for further requests.")  # fmt: skip
@DEVICE
def command(model: Path, host: str, port: int, device: str | None, **limits: Any) -> None:
    """Answer requests over HTTP with a trained model.

    POST /predict takes {"items": [{"text": ..., "text_pair": ...}], "tasks": [...]}; GET /tasks,
    /plan, /health, /ready, /metrics and /openapi.json describe the server. If the environment
    variable MOPS_API_KEY is set, clients must send it as `Authorization: Bearer KEY`.

    \b
    Example:
      mops serve runs/first/model
      curl -H 'content-type: application/json' -d '{"items": [{"text": "A lovely film."}]}' \\
           http://127.0.0.1:8000/predict
    """
    try:
        import uvicorn

        from mops.serve.app import Limits, Service, build_app
    except ModuleNotFoundError as cause:
        raise UsageError(
            f"mops serve needs {cause.name}, not installed here; pip install 'mops-nlp[serve]'"
        ) from cause
    from mops.training.machine import choose_device

    if limits["max_waiting"] < limits["max_items"]:
        raise UsageError(
            f"--max-waiting {limits['max_waiting']} is less than --max-items "
            f"{limits['max_items']}: such a request would never be answered"
        )
    predictor = mops.load(model, choose_device(device or "auto"))
    service = Service(predictor, Limits(**limits), os.environ.get(KEY, ""))
    uvicorn.run(build_app(service), host=host, port=port, access_log=False)
