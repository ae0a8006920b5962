"""YAML 1.2 in and out, JSON in, and validation of outside data with one-line errors.

Files from outside are regular files of bounded size and depth, and their YAML has no aliases: a
few lines of aliases can stand for gigabytes.
"""

import hashlib
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent

from mops.errors import RecipeError, UsageError, nearest

Value = TypeVar("Value")
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's types of such errors
MAPPING, WHOLE = "a mapping of keys to values", "a whole number"
ALLOWED = {  # pydantic's type of another error -> what is allowed there
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dataclass_type": MAPPING,
    "dict_type": MAPPING,
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "int_from_float": WHOLE,
    "int_parsing": WHOLE,
    "int_type": WHOLE,
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_type": MAPPING,
    "string_type": "a text",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}
MOST_SHOWN = 80  # characters of a value
MOST_JSON, MOST_YAML = 64 * 2**20, 2**19  # bytes of a file; a tokenizer of 250,000 words has 17 MB
MOST_DEPTH = 50  # of values within values
MOST_DIGITS = 20  # of a whole number in JSON


class FlatComposer(Composer):
    """Refuses aliases and deep nesting before anything is built."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.parser.check_event(AliasEvent):
            raise YAMLError("it has an alias (*name), which is not read; write the value out")
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise YAMLError(f"values are nested more than {MOST_DEPTH} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_text(path: Path, error: type[UsageError] = UsageError, most: int = MOST_JSON) -> str:
    """The UTF-8 text of a regular file of at most `most` bytes."""
    try:
        # Without waiting: a FIFO that nobody writes to would never open.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise error(f"{path} is not a regular file; name a file")
            content = file.read(most + 1)
        if len(content) > most:
            raise error(f"{path} has more than {most:,} bytes, which is no file of this kind")
        return content.decode("utf-8-sig")
    except OSError as cause:
        raise error(f"cannot read {path}: {cause.strerror}") from cause
    except UnicodeDecodeError as cause:
        raise error(f"{path} is not UTF-8 text; save it as UTF-8") from cause


def read_json(path: Path, error: type[UsageError] = UsageError) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        data = json.loads(read_text(path, error), parse_int=read_whole)
        check_depth(data)
    except (ValueError, RecursionError) as cause:
        raise error(f"{path} is not valid JSON: {cause}") from cause
    if not isinstance(data, dict):
        raise error(f"{path} holds {type(data).__name__}, not an object of keys and values")
    return data


def read_whole(digits: str) -> int:
    """A whole number that is no longer than any that is written here."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number has {len(digits)} digits, more than {MOST_DIGITS}")
    return int(digits)


def content_digest(data: Mapping[str, Any]) -> str:
    """The SHA-256 of what a JSON file says but for its key `sha256`, which holds this digest."""
    text = json.dumps({key: value for key, value in data.items() if key != "sha256"})
    return hashlib.sha256(text.encode()).hexdigest()


def check_depth(data: Any) -> None:
    level: list[Any] = [[data]]
    for _ in range(MOST_DEPTH):
        rows = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for row in rows for item in row if isinstance(item, dict | list)]
        if not level:
            return
    raise ValueError(f"values are nested more than {MOST_DEPTH} deep")


def read_yaml(path: Path, error: type[UsageError] = RecipeError) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        data = parse_yaml(read_text(path, error, MOST_YAML), FlatComposer)
        for text in texts_of(data):
            if "\0" in text or text != text.encode("utf-8", "replace").decode():
                raise YAMLError("a text has a NUL character or half of a surrogate pair")
    except YAMLError as cause:
        raise error(f"{path} is not valid YAML: {' '.join(str(cause).split())[:160]}") from cause
    if not isinstance(data, dict):
        raise error(f"{path} holds {type(data).__name__}, not a mapping of keys to values")
    return data


def read_own_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a file of this package, which may have aliases."""
    return dict(parse_yaml(path.read_text("utf-8"), Composer))


def parse_yaml(text: str, composer: type[Composer] = FlatComposer) -> Any:
    """YAML 1.2, safe: `1e-3` is a number, no tag runs code."""
    reader = YAML(typ="safe", pure=True)
    reader.Composer = composer
    try:
        return unshared(reader.load(text))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as cause:
        raise YAMLError(f"a value cannot be read: {cause}") from cause  # as a date in month 13


def texts_of(data: Any) -> Iterator[str]:
    """All keys and values that are texts."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for item in chain(data, data.values()) if isinstance(data, dict) else data:
            yield from texts_of(item)


def unshared(data: Any) -> Any:
    """Copies of values that YAML anchors share, so that changing one leaves the other."""
    if isinstance(data, dict):
        return {key: unshared(value) for key, value in data.items()}
    return [unshared(value) for value in data] if isinstance(data, list) else data


def format_yaml(data: dict[str, Any]) -> str:
    writer = YAML()
    writer.default_flow_style = None
    writer.width = 100
    writer.representer.ignore_aliases = lambda _: True
    out = io.StringIO()
    writer.dump(data, out)
    return out.getvalue()


def to_value(kind: type[Value], data: Any, *, where: str, error: type[UsageError]) -> Value:
    """`data` as a value of `kind`, or one line that names the key and what is allowed there."""
    try:
        value: Value = type_adapter(cast(Any, kind)).validate_python(data)
    except ValidationError as cause:
        raise error(_describe(cause, kind, data, where)) from cause
    return value


@cache  # making one takes milliseconds, and a survey validates hundreds of values
def type_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _describe(cause: ValidationError, kind: type, data: Any, where: str) -> str:
    """The key, what is allowed there in the words of a YAML file, and what was found."""
    errors = [(_place(error, data), error) for error in cause.errors(include_url=False)]
    place, first = next((e for e in errors if e[1]["type"] in UNKNOWN), errors[0])
    if first["type"] in UNKNOWN:
        key, known = place[-1], known_keys(kind)
        return f"{where}: unknown key {'.'.join(place)!r}.{known.get(key, nearest(key, known))}"
    # Of the alternatives of a key, what is wrong deepest inside: there it was nearly right.
    inside = [other for other, _ in errors if other[: len(place)] == place]
    place = max(inside, key=len)
    here = [error for other, error in errors if other == place]
    name = f"{where}: {'.'.join(place)}" if place else where
    if here[0]["type"] == "missing":
        return f"{name} is missing"
    allowed = list(dict.fromkeys(map(_allowed, here)))
    last = f" or {allowed.pop()}" if len(allowed) > 1 else ""
    return f"{name} must be {', '.join(allowed)}{last}; found {_shown(here[0]['input'])}"


def _place(error: Mapping[str, Any], data: Any) -> tuple[str, ...]:
    """The keys and indices that lead to an error, without pydantic's names of alternatives."""
    place: list[str] = []
    for number, step in enumerate(error["loc"], start=1):
        keys = range(len(data)) if isinstance(data, list | tuple) else data
        if isinstance(keys, dict | range) and step in keys:
            data = data[step]
            place.append(str(step))
        elif error["type"] == "missing" and number == len(error["loc"]):
            place.append(str(step))
    return tuple(place)


def _allowed(error: Mapping[str, Any]) -> str:
    known = ALLOWED.get(error["type"])
    return known.format_map(error.get("ctx", {})) if known else str(error["msg"])


def _shown(value: Any) -> str:
    """A value as in YAML, at most a line."""
    words = {None: "null", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def known_keys(kind: Any) -> dict[str, str]:
    """All keys that occur anywhere in the schema of `kind`, each with the place it belongs to."""
    schema = type_adapter(kind).json_schema()
    places = {"the top level": schema, **schema.get("$defs", {})}
    return {
        key: f" It is a key of {place.lower()}, not of this place"
        for place, part in places.items()
        for key in part.get("properties", {})
    }
