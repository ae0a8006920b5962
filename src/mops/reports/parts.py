"""The parts of a report as plain values: tables, pictures, cards."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Picture:
    """A figure. `svg` takes its colours from the page, `file` brings its own."""

    name: str  # file stem
    title: str
    caption: str
    svg: str
    file: str
    group: str = ""  # pictures of one group are shown one at a time, with a switch
    choice: str = ""  # what the switch calls this one


@dataclass(frozen=True)
class Card:
    """What hovering a candidate shows."""

    candidate: str
    plan: str
    says: str  # the plan in a sentence
    picture: str  # svg: which layers are shared by whom
    recipe: str  # YAML
    command: str  # repeats a training of it
    facts: tuple[tuple[str, str], ...] = ()  # name, value
    warnings: tuple[str, ...] = field(default=())
