"""The card of a bundle: what it is, in words.

The bundle: a trained model as one folder, complete in itself; no file of it can run code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mops.config.training import TaskEntry
from mops.data.tokens import load_tokenizer
from mops.errors import EncoderError
from mops.files import atomic_write, write_text
from mops.model.network import Network
from mops.model.pretrained import read_tensors, write_tensors
from mops.plans.layout import Layout, lay_out
from mops.plans.parser import read_plan
from mops.plans.picture import draw
from mops.plans.shapes import EncoderShape, HeadShape, Reading
from mops.yaml_io import format_yaml, read_yaml, to_value


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


if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 1
KEYS = ("encoder", "pair", "pool", "features", "max_length", "heads")


@dataclass(frozen=True)
class Bundle:
    """A model that is ready to answer, and what is known of it."""

    folder: Path
    network: Network
    tokenizer: Tokenizer
    entries: Mapping[str, TaskEntry]  # with the files it was trained and judged on
    config: Mapping[str, Any]

    @property
    def layout(self) -> Layout:
        return self.network.layout


def save_bundle(
    folder: Path,
    network: Network,
    tokenizer: Tokenizer,
    entries: Mapping[str, TaskEntry],
    facts: Mapping[str, Any],
) -> None:
    """Write a bundle; the folder appears complete or not at all."""
    layout, config = network.layout, config_of(network.layout, facts)
    data = {
        name: entry.model_dump(mode="json", exclude_none=True) for name, entry in entries.items()
    }
    with atomic_write(folder) as draft:
        draft.mkdir()
        write_tensors(draft / "model.safetensors", network.weights())
        (draft / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
        (draft / "plan.yaml").write_text(format_yaml(layout.plan.to_data()), "utf-8")
        (draft / "tasks.yaml").write_text(format_yaml(data), "utf-8")
        tokenizer.no_truncation()
        (draft / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
        (draft / "README.md").write_text(write_card(layout, config), "utf-8")


def write_facts(folder: Path, layout: Layout, facts: Mapping[str, Any]) -> None:
    """Say more of a bundle that is there already; its weights are not written again."""
    config = config_of(layout, facts)
    write_text(folder / "README.md", write_card(layout, config))
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")


def config_of(layout: Layout, facts: Mapping[str, Any]) -> dict[str, Any]:
    reading = asdict(layout.reading)
    return {"mops_bundle": FORMAT, "encoder": asdict(layout.encoder), **reading, **facts}


def load_bundle(folder: str | Path) -> Bundle:
    """Read a bundle back, strictly: every tensor must be there and nothing else."""
    folder = Path(folder)
    config = read_config(folder)
    tasks = read_yaml(folder / "tasks.yaml", EncoderError)
    entries = {
        name: to_value(TaskEntry, entry, where=f"{folder}/tasks.yaml", error=EncoderError)
        for name, entry in tasks.items()
    }
    plan = read_plan(read_yaml(folder / "plan.yaml", EncoderError))
    encoder = to_value(
        EncoderShape, config["encoder"], where=f"{folder}/config.json", error=EncoderError
    )
    layout = lay_out(
        plan, [entry.task(name) for name, entry in entries.items()], encoder, read_reading(config)
    )
    network = Network(layout)
    load_weights(network, folder / "model.safetensors")
    network.eval()
    return Bundle(folder, network, load_tokenizer(folder), entries, config)


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as cause:
        raise EncoderError(
            f"{folder} is no bundle: config.json cannot be read ({cause}); "
            "pass the folder `model` of a run"
        ) from cause
    if not isinstance(config, dict) or config.get("mops_bundle") != FORMAT:
        raise EncoderError(
            f"{folder} is no bundle of this version of mops; pass the folder `model` of a run"
        )
    missing = [key for key in KEYS if key not in config]
    if missing:
        raise EncoderError(f"{path} lacks {', '.join(missing)}; the bundle is damaged")
    return config


def read_reading(config: Mapping[str, Any]) -> Reading:
    return Reading(
        pair=config["pair"],
        pool=config["pool"],
        features=tuple(config["features"]),
        max_length=config["max_length"],
        heads={task: HeadShape(**head) for task, head in config["heads"].items()},
    )


def load_weights(network: Network, path: Path) -> None:
    try:
        weights, _ = read_tensors(path)
    except OSError as cause:
        raise EncoderError(f"{path} cannot be read: {cause.strerror}") from cause
    ours = network.bank.state_dict()
    wrong = set(ours) ^ set(weights)
    wrong |= {key for key in set(ours) & set(weights) if ours[key].shape != weights[key].shape}
    if wrong:
        raise EncoderError(
            f"{path} does not fit its plan: {len(wrong)} tensors are missing, left over or of "
            f"another shape, such as {min(wrong)!r}; the files of the bundle do not belong together"
        )
    network.bank.load_state_dict(weights)
