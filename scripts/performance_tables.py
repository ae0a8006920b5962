"""Results of benchmarks as Markdown: a function for every form that a result has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Data = Mapping[str, Any]
Lines = list[str]
PICTURE = "img/time-to-score.svg"  # beside the page
HEAD = ("name", "made", "command", "data", "machine")  # of every result


# ------------------------------------------------------------------ tables and sentences


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Lines:
    ruler = ["---", *("---:" for _ in header[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (header, ruler, *rows)] + [""]


def comparisons(data: Data, case: str = "") -> Iterator[tuple[str, Data]]:
    """(where it was found, comparison), however deep in a result."""
    if "alternatives" in data:
        yield case, data
        return
    for key, value in data.items():
        if isinstance(value, dict):
            yield from comparisons(value, f"{case} {key}".strip().removeprefix("cases "))


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}"


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def span(values: Sequence[float], form: str = "{:.2f}") -> str:
    """`low to high`, or the one value that both are."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def compared(data: Data) -> Lines:
    """A row for every alternative of every case."""
    rows = [
        [
            case,
            name,
            milliseconds(facts["seconds"]),
            f"{facts['speedup']:.2f}",
            percent(facts.get("share_of_peak")),
        ]
        for case, found in comparisons(data)
        for name, facts in found["alternatives"].items()
    ]
    return table(("case", "alternative", "ms", "times as fast", "of peak"), rows) + said(data)


def said(data: Data) -> Lines:
    """In words: from least to most for each alternative, and what is slower."""
    found = list(comparisons(data))
    speeds: dict[tuple[str, str], list[float]] = {}
    for _, each in found:
        for name, facts in each["alternatives"].items():
            if name != each["reference"]:
                speeds.setdefault((name, each["reference"]), []).append(facts["speedup"])
    lines = [
        f"- {name}: {span(of)} times as fast as {base}." for (name, base), of in speeds.items()
    ]
    slow = [
        f"{name} at {case or 'this'} ({facts['speedup']:.2f})"
        for case, each in found
        for name, facts in each["alternatives"].items()
        if facts["speedup"] < 1
    ]
    return [*lines, *([f"- **Slower**: {', '.join(slow)}."] if slow else []), ""]


def costs(data: Data) -> Lines:
    """The same the other way round: how many times the reference's time each takes."""
    rows: list[list[str]] = []
    times: dict[tuple[str, str], list[float]] = {}
    for case, found in comparisons(data):
        for name, facts in found["alternatives"].items():
            times.setdefault((name, found["reference"]), []).append(1 / facts["speedup"])
            cost = f"{1 / facts['speedup']:.2f}"
            rows.append([case, name, milliseconds(facts["seconds"]), cost])
    lines = [
        f"- {name}: {span(of)} times the cost of {base}."
        for (name, base), of in times.items()
        if name != base
    ]
    return [*table(("case", "alternative", "ms", "times the cost"), rows), *lines, ""]


def by_size(cases: Mapping[str, Data], first: str, facts: Sequence[tuple[str, str, str]]) -> Lines:
    """A row for every size: `facts` of it, both times, how many times as fast."""
    names = list(next(iter(cases.values()))["alternatives"])
    ours = names[-1]
    header = [first, *(title for title, _, _ in facts), *(f"{name}, ms" for name in names)]
    rows = [
        [
            size,
            *(form.format(case[key]) for _, key, form in facts),
            *(milliseconds(case["alternatives"][name]["seconds"]) for name in names),
            f"{case['alternatives'][ours]['speedup']:.2f}",
            percent(case["alternatives"][ours]["share_of_peak"]),
        ]
        for size, case in cases.items()
    ]
    return table([*header, f"{ours}: times as fast", "of peak"], rows)


# ------------------------------------------------------------------ the bodies of sections


def batch_sizes(data: Data) -> Lines:
    facts = [("tokens of a step", "tokens", "{:,}")]
    return by_size(data["cases"], "rows per task", facts) + said(data)


def lengths(data: Data) -> Lines:
    facts = [("sequences", "sequences", "{}"), ("padding", "padding", "{:.0%}")]
    parts: Lines = []
    for work in ("training", "prediction"):
        parts += [f"{work.capitalize()}, {data['tokens']:,} tokens:", ""]
        parts += by_size(data[work], "longest", facts)
        parts += said(data[work])
    return parts


def time_to_score(data: Data) -> Lines:
    contenders = data["contenders"]
    levels = list(next(iter(contenders.values()))["minutes_to"])
    rows = []
    for name, own in contenders.items():
        reached = (own["minutes_to"][level] for level in levels)
        best = max(own["curve"], key=lambda point: float(point["overall"]))
        scores = [best["overall"], *best["scores"].values()]
        rows.append(
            [
                name,
                *("never" if minutes is None else f"{minutes:.1f}" for minutes in reached),
                *(f"{score:.3f}" for score in scores),
                f"{own['curve'][-1]['minutes']:.1f}",
            ]
        )
    tasks = list(next(iter(contenders.values()))["curve"][0]["scores"])
    header = ["minutes to", *levels, "best", *tasks, "minutes in all"]
    return [*table(header, rows), f"![Score against minutes of training]({PICTURE})", ""]


def memory(data: Data) -> Lines:
    parts: Lines = []
    for work, sizes in data["works"].items():
        kinds = list(next(iter(sizes.values())))
        header = [work, *(f"{size} rows per task, MiB" for size in sizes)]
        rows = [[kind, *(memory_cell(sizes[size][kind]) for size in sizes)] for kind in kinds]
        parts += table(header, rows)
        parts += [f"- {work}: {said_of_memory(list(sizes.values()))}", ""]
    return parts


def said_of_memory(sizes: Sequence[Data]) -> str:
    """One encoder on both sides."""
    ours, theirs = "mops shared", "transformers, one model"
    shares = [own_mib(of[ours]) / own_mib(of[theirs]) for of in sizes]
    small = [
        own_mib(of[f"{ours}, int8"]) / own_mib(of[theirs]) for of in sizes if f"{ours}, int8" in of
    ]
    more = f", in 8 bits {span(small)} times" if small else ""
    return f"{ours} takes {span(shares)} times what {theirs} takes{more}, libraries not counted."


def memory_cell(facts: Data) -> str:
    return f"{facts['peak_mib']:,.0f} ({own_mib(facts):,.0f})"


def own_mib(facts: Data) -> float:
    """What is left when the libraries are taken away."""
    return float(facts["peak_mib"] - facts["libraries_mib"])


def profile(data: Data) -> Lines:
    parts: Lines = []
    for work, sides in data["works"].items():
        groups = [g for g in next(iter(sides.values()))["shares"] if is_there(sides, g)]
        rows = [
            [group, *(f"{facts['shares'][group]:.1%}" for facts in sides.values())]
            for group in groups
        ]
        rows.append(["ms, all", *(milliseconds(facts["seconds"]) for facts in sides.values())])
        parts += table([work, *sides], rows)
        parts += [largest(work, sides["mops"]["shares"]), ""]
    return parts


def is_there(sides: Mapping[str, Data], group: str) -> bool:
    return any(facts["shares"][group] > 0 for facts in sides.values())


def largest(work: str, shares: Mapping[str, float]) -> str:
    """What is linear layers, and what is most of the rest."""
    linear = sum(share for group, share in shares.items() if group.startswith("linear"))
    rest = {g: s for g, s in shares.items() if not g.startswith("linear")}
    most = sorted(rest, key=lambda group: -rest[group])[:3]
    named = ", ".join(f"{group} ({rest[group]:.0%})" for group in most)
    return (
        f"In a {work} of mops {linear:.0%} of the time are matrix products of linear layers; the "
        f"largest of the rest: {named}."
    )


def frozen_survey(data: Data) -> Lines:
    """A row for every stage, and the one-by-one way beside them."""
    header = ("stage", "networks", "all, s", "training, s", "ms per network and step")
    rows = [
        [
            name.replace("_", " "),
            str(len(stage["networks"])),
            f"{stage['seconds']:,.0f}",
            f"{stage['training_seconds']:,.0f}",
            f"{stage['milliseconds_per_network_step']:.2f}",
        ]
        for name, stage in data["stages"].items()
    ]
    alone = data["one_by_one"]
    return [
        *table(header, rows),
        f"- {data['networks']} networks of {data['steps']:,} steps in {data['processes']} "
        f"processes: {data['seconds']:,.0f} s of wall time from the first text to the last score, "
        f"of them {data['encoding_seconds']:,.0f} s for encoding {data['sequences']:,} sequences.",
        f"- One after the other without a cache, {1000 * alone['seconds_per_step']:,.1f} ms a step "
        f"({alone['measured_steps']} steps measured, the rest extrapolated; training steps only): "
        f"{alone['seconds']:,.0f} s, {alone['speedup']:,.0f} times as long.",
        "",
    ]


def million_rows(data: Data) -> Lines:
    """A row for every length of the file."""
    header = ("rows", "peak, MiB")
    rows = [
        [f"{case['rows']:,}", f"{case['peak_bytes'] / 2**20:,.0f}"]
        for case in data["cases"].values()
    ]
    return table(header, rows)


def ray_overhead(data: Data) -> Lines:
    """A row for each engine."""
    header = ("engine", *(f"{count:,} rows, s" for count in data["rows"]), "a million rows, s")
    rows = [
        [engine, *(f"{each:,.1f}" for each in seconds), f"{per_million:,.1f}"]
        for (engine, seconds), per_million in zip(
            data["seconds"].items(), data["seconds_per_million_rows"].values(), strict=True
        )
    ]
    return [*table(header, rows), f"- Starting Ray: {data['start_seconds']:,.1f} s.", ""]


def load(data: Data) -> Lines:
    """A row for each way to compute; in words: overload and memory."""
    header = ("way", "requests", "items per second", "p50, ms", "p95, ms", "p99, ms")
    rows = [
        [
            name,
            f"{way['requests']:,}",
            f"{way['items_per_second']:,.1f}",
            *(f"{way['milliseconds'][cut]:,.0f}" for cut in ("p50", "p95", "p99")),
        ]
        for name, way in data["ways"].items()
    ]
    over, memory, workers = data["overload"], data["memory"], data["workers"]
    return [
        *table(header, rows),
        f"- {data['connections']} connections; together: {data['speedup']:.2f} times the items of "
        "one by one. Every answer was that of `mops predict`.",
        f"- At overload {over['answered']:,} requests were answered and {over['refused']:,} "
        f"refused (503 with `Retry-After`); then one took "
        f"{over['answered_after_milliseconds']:,.0f} ms.",
        f"- Resident memory over {memory['minutes']:.1f} minutes of load: "
        f"{memory['first_mib']:,.0f} MiB in the first quarter, {memory['last_mib']:,.0f} MiB in "
        "the last.",
        f"- Libraries not counted, one worker takes {workers['one_mib']:,.0f} MiB; a second adds "
        f"{workers['share_of_second']:.0%}.",
        "",
    ]


def plain(data: Data) -> Lines:
    """Results of any form: comparisons where there are some, else every number by its name."""
    if list(comparisons(data)):
        return compared(data)
    own = {key: value for key, value in data.items() if key not in HEAD}
    return table(("fact", "value"), list(leaves(own)))


def leaves(data: Data, path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        here = f"{path} {key}".strip()
        if isinstance(value, dict):
            yield from leaves(value, here)
        else:
            yield here, f"{value:,.3f}" if isinstance(value, float) else str(value)
