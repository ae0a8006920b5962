"""The layout of each candidate, from its record alone: no encoder file is read."""

from __future__ import annotations

from mops.errors import MopsError
from mops.plans.layout import Layout, lay_out
from mops.plans.shapes import EncoderShape
from mops.reports.material import Material, TrialFiles


def layouts_of(material: Material) -> dict[str, Layout]:
    """Candidate -> layout, for those whose record says enough."""
    found: dict[str, Layout] = {}
    for trial in material.trials:
        if trial.candidate not in found:
            layout = layout_of(trial)
            if layout is not None:
                found[trial.candidate] = layout
    return found


def layout_of(trial: TrialFiles) -> Layout | None:
    """None where the record has no shape of an encoder, or names a plan's file that is gone."""
    try:
        shape = EncoderShape(**trial.record.meta_info.encoder_shape)  # type: ignore[arg-type]
        tasks = trial.recipe.task_values()
        reading = trial.recipe.training.reading(tasks)
        return lay_out(trial.recipe.sharing_plan(), list(tasks.values()), shape, reading)
    except (KeyError, TypeError, MopsError):
        return None
