"""Valid files, broken at random: bytes, and values of JSON and YAML."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from mops.yaml_io import format_yaml, parse_yaml

NASTY = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, -0.0, 0.1, float("nan"),
    float("inf"), "", " ", "0", "nan", "\0", "\u202e", "\ud800", "x" * 70_000, "../../etc/passwd",
    "/dev/zero", "hub:nobody/nothing@main", "{{7*7}}", "*", [], {}, [[]], [None], {"": None},
    {"a": {"b": {"c": []}}}, ["x"] * 3, [0.5, 1], [1, "x"],
)  # fmt: skip
PIECES = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b'""', b"'", b"\r", b"\n\n", b"\t", b",",
    b"[" * 2000, b"{" * 500, b"9" * 400, b"-", b"&a *a ", b"!!python/object:os.system x",
    b"\xed\xa0\x80",
    b"NaN", b"\x1b[31m", b"a: &a [*a, *a]\n", b": ", b"%",
)  # fmt: skip


def change_bytes(data: bytes, draw: random.Random) -> bytes:
    """Flip a bit, cut, leave out, repeat, insert, or change a number."""
    at, size = draw.randrange(len(data) + 1), draw.choice((1, 8, 64, len(data)))
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: data[: at - 1] + bytes([data[at - 1] ^ 1 << draw.randrange(8)]) + data[at:],
        lambda: data[:at],
        lambda: data[:at] + data[at + size :],
        lambda: data[: at + size] + data[at:],
        lambda: data[:at] + draw.choice(PIECES) + data[at:],
        lambda: data[:at] + draw.randbytes(min(size, 64)) + data[at + size :],
        lambda: change_number(data, draw),
    )
    return draw.choice(changes)() if data and at else draw.randbytes(size)


def change_number(data: bytes, draw: random.Random) -> bytes:
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if not numbers:
        return data
    one = draw.choice(numbers)
    new = draw.choice((b"-1", b"0", b"1e309", b"99999999999", b"NaN", b"null", b"true", b"0.5"))
    return data[: one.start()] + new + data[one.end() :]


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    keys = list(data) if isinstance(data, dict) else range(len(data))
    for key in keys:
        yield data, key
        if isinstance(data[key], dict | list):
            yield from places(data[key])


def change_value(data: Any, draw: random.Random) -> Any:
    """Another value somewhere, or a key that is gone, new or renamed."""
    data = copy.deepcopy(data)
    found = list(places(data))
    if not found:
        return draw.choice(NASTY)
    container, key = draw.choice(found)
    kind = draw.randrange(6)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[draw.choice(("", "new", "__class__", "\u202e", "a.b", "0"))] = container.pop(key)
    elif kind == 2:
        other, its = draw.choice(found)
        container[key] = copy.deepcopy(other[its]) if its in other or isinstance(its, int) else 0
    else:
        container[key] = draw.choice(NASTY)
    return data


def change_text(text: str, draw: random.Random, name: str) -> bytes:
    """A file of JSON or YAML with another value, or with other bytes."""
    if name.endswith((".json", ".yaml")) and draw.random() < 0.6:
        is_json = name.endswith(".json")
        data = change_value(json.loads(text) if is_json else parse_yaml(text), draw)
        try:
            text = json.dumps(data) if is_json else format_yaml(data)
        except Exception:  # a value that YAML cannot say
            text = json.dumps(data)
    else:
        return change_bytes(text.encode(), draw)
    return text.encode("utf-8", "surrogatepass")
