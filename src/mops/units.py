"""Numbers with units, parsed from and formatted for people: 40M, 20ms, 15m, 2GB."""

import math
import re
from collections.abc import Mapping

from mops.errors import UsageError

COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
BYTES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_amount(text: str, units: Mapping[str, float], where: str) -> float:
    """A number above zero with one of the units, as a multiple of the unit whose factor is 1."""
    match = AMOUNT.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or unit not in units or not 0 < float(match[1]) < math.inf:
        allowed = ", ".join(name for name in units if name)
        example = "20ms" if "ms" in units else "2GB" if "gb" in units else "40M"
        raise UsageError(
            f"{where} {text!r}: write a number above 0 and its unit ({allowed}"
            f"{', or none' if '' in units else ''}), for example {example}"
        )
    return float(match[1]) * units[unit]


def format_count(number: float) -> str:
    return f"{number / 1e6:.2f} M" if number >= 1e4 else f"{number:,.0f}"


def format_seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def format_bytes(number: float) -> str:
    return f"{number / 1e6:.1f} MB" if number < 1e9 else f"{number / 1e9:.2f} GB"
