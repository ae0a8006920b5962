"""The card of a bundle: what it is, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mops.layout import Layout
from mops.picture import draw


def write_card(layout: Layout, config: Mapping[str, Any]) -> str:
    """README.md of a bundle."""
    rows = [
        f"| {name} | {task.type} | {answers(task)} | {task.score_name} | {reported(config, name)} |"
        for name, task in layout.tasks.items()
    ]
    return "\n".join(
        [
            "---",
            "library_name: mops",
            "pipeline_tag: text-classification",
            "---",
            "",
            f"# {' + '.join(layout.tasks)} ({layout.plan.name})",
            "",
            f"One model for {len(layout.tasks)} tasks, trained with mops. "
            f"Plan `{layout.plan.name}`: {layout.plan.about or 'see plan.yaml'}. "
            f"Encoder `{config.get('encoder_name', '')}`, "
            f"{layout.parameters:,} parameters.",
            "",
            "```",
            draw(layout),
            "```",
            "",
            "| task | type | answers | score | on the report half of validation |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "```",
            "mops predict FOLDER INPUT.csv",
            "```",
            "",
        ]
    )


def answers(task: Any) -> str:
    return f"{task.range[0]:g} to {task.range[1]:g}" if task.range else ", ".join(task.labels)


def reported(config: Mapping[str, Any], task: str) -> str:
    part = config.get("scores", {}).get(task, {}).get("report", {})
    name = config.get("main_scores", {}).get(task, "")
    if name not in part:
        return "not measured"
    return f"{part[name]:.3f} ± {part['stderr']:.3f} ({part['rows']} rows)"
