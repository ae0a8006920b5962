"""Plans as a person would put them into a YAML file, for the properties of every plan."""

from __future__ import annotations

from typing import Any

PAIR_OF_TASKS = [["paraphrase", "similarity"]]
COPIES: tuple[dict[str, Any], ...] = (
    {
        "name": "tree",
        "copies": [
            {"part": "*", "layers": [1, 2], "per": ["layer", "task"], "groups": PAIR_OF_TASKS},
            {"part": "*", "layers": [-1, -1], "per": ["layer", "task"]},
            {"part": "pooler", "per": ["task"], "groups": PAIR_OF_TASKS},
        ],
        "late": [
            {"per": ["task"], "groups": PAIR_OF_TASKS, "width": 16},
            {"per": [], "norm": True},
            {"per": []},
        ],
    },
    {"name": "one layer for all", "copies": [{"part": "*", "per": []}]},
    {"name": "one layer per task", "copies": [{"part": "*", "per": ["task"]}]},
    {"name": "norms", "copies": [{"part": "norms", "per": ["layer", "task"]}]},
    {
        "name": "meet again",
        "copies": [{"part": "*", "layers": [1, 1], "per": ["layer", "task"]}],
        "rates": [{"owner": "*/layer03*", "factor": 0}, {"owner": "*", "factor": 0.5}],
    },
    {
        "name": "criss-cross",
        "copies": [
            {"part": "attention", "per": ["task"], "groups": [["sentiment", "similarity"]]},
            {"part": "feedforward", "per": ["layer", "task"], "groups": PAIR_OF_TASKS},
        ],
        "rates": [{"owner": "embeddings*", "factor": 0}, {"owner": "*", "factor": 1}],
    },
)
ADDITIONS: tuple[dict[str, Any], ...] = (
    {
        "name": "one of each kind",
        "additions": [
            {
                "name": "small",
                "kind": "pal",
                "sites": ["after_feedforward", "on_top"],
                "per": {"down": [], "attend": ["layer", "task"], "up": ["task"], "gate": []},
                "layers": [1, 2],
                "depth": 2,
                "scale": 0.3,
                "bound": 1,
                "groups": PAIR_OF_TASKS,
            },
            {
                "name": "narrow",
                "kind": "bottleneck",
                "activation": "gelu",
                "sites": ["after_attention", "beside_layer"],
                "per": {"down": ["layer"], "up": ["task"]},
                "size": 4,
                "scale": -0.5,
            },
            {
                "name": "turn",
                "kind": "lora",
                "sites": ["in_attention"],
                "per": {"down": [], "up": ["layer", "task"]},
                "layers": [-1, -1],
            },
            {
                "name": "lift",
                "kind": "task_embedding",
                "sites": ["in_feedforward"],
                "per": {"vector": ["task"], "gate": ["layer"]},
            },
            {
                "name": "flat",
                "kind": "low_rank",
                "sites": ["beside_layer"],
                "size": 3,
                "per": {"down": [], "up": ["task"]},
            },
            {
                "name": "choice",
                "kind": "experts",
                "sites": ["after_feedforward"],
                "size": 2,
                "experts": 3,
                "per": {"router": ["task"], "down": ["layer"], "up": ["layer"]},
            },
            {
                "name": "louder",
                "kind": "amplitude",
                "sites": ["after_attention"],
                "per": {"vector": ["layer", "task"]},
                "groups": PAIR_OF_TASKS,
            },
        ],
    },
    {
        "name": "frozen layers, own tops",
        "copies": [{"part": "*", "layers": [-1, -1], "per": ["layer", "task"]}],
        "additions": [
            {
                "name": "top",
                "kind": "bottleneck",
                "sites": ["on_top"],
                "per": {"down": ["layer"], "up": ["layer", "task"]},
                "depth": 3,
            }
        ],
        "rates": [{"owner": "*/layer*", "factor": 0}, {"owner": "*", "factor": 1}],
    },
)


def edges(**words: Any) -> list[dict[str, Any]]:
    """From the first task to both others, and from the second to the third."""
    first, second, third = "sentiment", "paraphrase", "similarity"
    pairs = (first, second), (first, third), (second, third)
    return [{"source": source, "target": target, **words} for source, target in pairs]


FULL, STOP, FACTOR = (edges(gradient=word) for word in ("full", "stop", 0.3))
FEEDS: tuple[dict[str, Any], ...] = (
    {"name": "fed in full", "feeds": FULL},
    {"name": "fed constants", "feeds": STOP, "late": [{"per": ["task"]}]},
    {"name": "fed a third", "feeds": FACTOR},
    {"name": "fed with weights", "feeds": edges(combine="attention")},
    {"name": "fed hidden", "feeds": [edges(what="hidden")[0], {**FULL[1], "what": "hidden"}]},
    {  # what the second passes on of the first, the third teaches although it holds the second
        "name": "fed in three ways",
        "late": [{"per": ["task"]}, {"per": []}],
        "feeds": [FULL[0], STOP[1], edges()[2]],
    },
)
PULLS: tuple[dict[str, Any], ...] = (
    {
        "name": "held",
        "copies": [{"part": "*", "layers": [2, 3], "per": ["layer", "task"]}],
        "pull": [
            {"owner": "*/layer03/*", "strength": 0.2},
            {"owner": "embeddings", "strength": 0.1, "towards": "start"},
        ],
    },
)
WRITTEN = (*COPIES, *ADDITIONS, *FEEDS, *PULLS)
