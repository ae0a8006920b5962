"""Whether the folder of a finished run still holds what the run has written."""

from collections.abc import Iterator
from pathlib import Path

from mops.config.recipe import Recipe, differing_key, to_recipe
from mops.errors import EncoderError, RunError
from mops.evaluate.evaluate import digest_predictions
from mops.files import file_digest
from mops.predict.manifest import check_manifest
from mops.record import Record
from mops.training.checkpoint import START_AGAIN
from mops.yaml_io import content_digest, read_json


def check_finished(folder: Path, record: Record, recipe: Recipe) -> None:
    """Refuse a finished run whose files are not its own, or are not as they were written."""
    for problem in find_changes(folder, record, recipe):
        raise RunError(
            f"{folder} holds this run, finished, but {problem}; put the file back, name another "
            f"folder with --out, or {START_AGAIN}"
        )


def find_changes(folder: Path, record: Record, recipe: Recipe) -> Iterator[str]:
    """What differs; records of older versions hold fewer digests."""
    path = folder / "record.json"
    there = to_recipe(dict(record.run_info.recipe), where=str(path))
    if key := differing_key(there.to_data(), recipe.to_data()):
        yield f"record.json is of another training ({key})"
    if record.sha256 not in ("", content_digest(read_json(path))):
        yield "record.json is not as it was written"
    model, found = folder / "model", digest_predictions(folder)
    try:
        check_manifest(model)
    except EncoderError as cause:
        yield str(cause)
    for name, digest in record.predictions_sha256.items():
        if found.get(name) != digest:
            yield f"predictions/{name} is {'not as it was written' if name in found else 'missing'}"
    weights = model / "model.safetensors"
    if not weights.is_file():
        yield f"{weights} is missing"
    elif record.model_sha256 not in ("", file_digest(weights)):
        yield f"{weights} has not the weights of this run"
