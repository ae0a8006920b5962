"""YAML 1.2 in and out, and validation of outside data with one-line errors."""

import io
import re
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mops.errors import RecipeError, UsageError, nearest

Value = TypeVar("Value")
BRANCH = re.compile(r"[\[-]|^(str|int|float|bool|dict|tuple)$")  # pydantic's name of a union branch
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's types of such errors


def read_yaml(path: Path, error: type[UsageError] = RecipeError) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        data = parse_yaml(path.read_text(encoding="utf-8-sig"))
    except OSError as cause:
        raise error(f"cannot read {path}: {cause.strerror}") from cause
    except UnicodeDecodeError as cause:
        raise error(f"{path} is not UTF-8 text; save it as UTF-8") from cause
    except YAMLError as cause:
        raise error(f"{path} is not valid YAML: {' '.join(str(cause).split())[:160]}") from cause
    if not isinstance(data, dict):
        raise error(f"{path} holds {type(data).__name__}, not a mapping of keys to values")
    return data


def parse_yaml(text: str) -> Any:
    """YAML 1.2, safe: `1e-3` is a number, no tag runs code."""
    return unshared(YAML(typ="safe", pure=True).load(text))


def unshared(data: Any) -> Any:
    """Copies of values that YAML anchors share, so that changing one leaves the other."""
    if isinstance(data, dict):
        return {key: unshared(value) for key, value in data.items()}
    return [unshared(value) for value in data] if isinstance(data, list) else data


def format_yaml(data: dict[str, Any]) -> str:
    writer = YAML()
    writer.default_flow_style = None
    writer.width = 100
    out = io.StringIO()
    writer.dump(data, out)
    return out.getvalue()


def to_value(kind: type[Value], data: Any, *, where: str, error: type[UsageError]) -> Value:
    """`data` as a value of `kind`, or one line that names the key and what is allowed there."""
    try:
        value: Value = type_adapter(cast(Any, kind)).validate_python(data)
    except ValidationError as cause:
        raise error(f"{where}: {_describe(cause, kind)}") from cause
    return value


@cache  # making one takes milliseconds, and a survey validates hundreds of values
def type_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _describe(cause: ValidationError, kind: type) -> str:
    errors = cause.errors(include_url=False)
    first = next((error for error in errors if error["type"] in UNKNOWN), errors[0])
    place = ".".join(str(step) for step in first["loc"] if not BRANCH.search(str(step)))
    if first["type"] in UNKNOWN:
        key, known = str(first["loc"][-1]), known_keys(kind)
        return f"unknown key {place!r}.{known.get(key, nearest(key, known))}"
    found = f"; found {first['input']!r}" if first["type"] != "missing" else ""
    return f"{place or 'it'}: {first['msg'].removeprefix('Value error, ')}{found}"


def known_keys(kind: Any) -> dict[str, str]:
    """All keys that occur anywhere in the schema of `kind`, each with the place it belongs to."""
    schema = type_adapter(kind).json_schema()
    places = {"the top level": schema, **schema.get("$defs", {})}
    return {
        key: f" It is a key of {place.lower()}, not of this place"
        for place, part in places.items()
        for key in part.get("properties", {})
    }
