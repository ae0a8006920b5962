"""matplotlib's SVG made fit: small, for many in one page, in the colours of the page or its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from mops.reports.figures.colours import PAGE

FONTS = "'DejaVu Sans', Verdana, 'Segoe UI', sans-serif"
HEAD = re.compile(r'<svg [^>]*viewBox="0 0 ([0-9.]+) ([0-9.]+)"[^>]*>')
# A style for `*` would reach the whole page; the root says the same for its own.
STYLE = re.compile(r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>")
METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
BREAK = re.compile(r"\s*\n\s*")
LONG = re.compile(r"(?<!opacity: )(?<![#\w])(-?\d+\.\d)\d{3,}")  # tenths of a point are enough
SHAPE = re.compile(r"(?<![#\w])(-?\d+\.\d\d)\d+")  # but not for the shape of a mark
NO_TURN = re.compile(r' transform="rotate\(-?0 [^"]*\)"')
FONT = re.compile(r"font-family: [^;\"]*;? ?")
CANDIDATE = re.compile(r' id="candidate-(\d+)"')
ID = re.compile(r' id="([^"]+)"')
USED = re.compile(r'(?:href="#|url\(#)([^")]+)')
COLOUR = re.compile("|".join(PAGE))
BARE = re.compile(r"<g>\s*</g>|<defs>\s*</defs>")


@dataclass(frozen=True)
class Body:
    """What is inside of a drawing, with its size in points."""

    width: float
    height: float
    text: str


def read_body(raw: str, name: str) -> Body:
    """Ids begin with the drawing's name; marks of candidates become `data-candidate`."""
    head = HEAD.search(raw)
    assert head is not None, "matplotlib writes a viewBox"
    text = raw[head.end() : raw.rindex("</svg>")]
    text = METADATA.sub("", STYLE.sub("", text))
    used = set(USED.findall(text))

    def tidy(found: re.Match[str]) -> str:
        tag = FONT.sub("", NO_TURN.sub("", BREAK.sub(" ", found[0])))
        tag = (SHAPE if tag.startswith("<path id=") else LONG).sub(r"\1", tag)
        tag = CANDIDATE.sub(r' data-candidate="\1"', tag)
        tag = ID.sub(lambda own: f' id="{name}-{own[1]}"' if own[1] in used else "", tag)
        return USED.sub(lambda own: own[0][: -len(own[1])] + f"{name}-{own[1]}", tag)

    text = BREAK.sub("", TAG.sub(tidy, text))
    while BARE.search(text):
        text = BARE.sub("", text)
    return Body(float(head[1]), float(head[2]), text)


def for_page(body: Body, title: str) -> str:
    """No size of its own, no ground; ink and lines as the page has them."""
    inside = TAG.sub(lambda tag: COLOUR.sub(lambda found: PAGE[found[0]], tag[0]), body.text)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {body.width:g} {body.height:g}" '
        f'role="img" aria-label={quoteattr(title)} stroke-linejoin="round">'
        f"<title>{escape(title)}</title>{inside.replace('xlink:href', 'href')}</svg>"
    )


def for_file(body: Body, title: str) -> str:
    """A complete document on white."""
    size = f'width="{body.width:g}pt" height="{body.height:g}pt"'
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{size} viewBox="0 0 {body.width:g} {body.height:g}" stroke-linejoin="round" '
        f'font-family="{FONTS}"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{body.text}</svg>\n'
    )
