"""The processes of a server: one or several workers on one socket, which map the same weights.

Every worker builds its application from the environment, because it starts as a new process. The
log is one JSON object per line.
"""

import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from mops.serve.app import Limits, Service, build_app
from mops.serve.survey import SurveyService, build_survey_app

KEY, SETTINGS = "MOPS_API_KEY", "MOPS_SERVE_SETTINGS"
METRICS = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus_client when it is imported
HEALTH_CHECK = 120  # seconds in which a worker must react; importing torch takes its time


class JsonLines(logging.Formatter):
    """A record as a JSON object: time, level, event and the fields that it carries."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": record.process,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry)


LOGGING: Mapping[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": JsonLines}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": "INFO", "propagate": False}
        for name in ("mops", "uvicorn")
    },
}


def serve(
    factory: Callable[[], FastAPI], settings: Mapping[str, Any], *, workers: int = 1, **options: Any
) -> None:
    """Answer requests until a signal; then finish what was accepted."""
    with tempfile.TemporaryDirectory(prefix="mops-metrics-") as folder:
        os.environ[SETTINGS] = json.dumps(settings)
        if workers > 1:
            factory()  # refuses a folder that no worker could load
            os.environ[METRICS] = folder
        uvicorn.run(
            f"{__name__}:{factory.__name__}",
            factory=True,
            workers=workers,
            access_log=False,
            log_config=dict(LOGGING),
            timeout_worker_healthcheck=HEALTH_CHECK,
            **options,
        )


def serve_model() -> FastAPI:
    """The application that answers with a model, as the environment describes it."""
    from mops.predict.bundle import load

    given = json.loads(os.environ[SETTINGS])
    predictor = load(given["model"], given["device"])
    limits = Limits(**given["limits"])
    return build_app(Service(predictor, limits, os.environ.get(KEY, "")))


def serve_survey() -> FastAPI:
    """The application that shows a survey."""
    folder = Path(json.loads(os.environ[SETTINGS])["survey"])
    return build_survey_app(SurveyService(folder), os.environ.get(KEY, ""))
