"""Which candidate others are compared with, and which has a model per task: found by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mops.errors import RecipeError, nearest
from mops.plans import SINGLE

if TYPE_CHECKING:
    from mops.survey.design.survey import Survey


def complete(survey: Survey, baseline: str = "", single: str = "") -> Survey:
    """The baseline (default: the first) and the single-task candidate by their names.

    A plan stands for its first candidate.
    """
    names = [candidate.name for candidate in survey.candidates()]
    found = resolved(survey, baseline, "baseline") if baseline else names[0]
    alone = resolved(survey, single, "single") if single else model_per_task(survey, found)
    return survey.model_copy(update={"baseline": found, "single": alone})


def resolved(survey: Survey, wanted: str, what: str) -> str:
    found = match(survey, wanted)
    if not found:
        names = [candidate.name for candidate in survey.candidates()]
        shown = "; ".join(names[:8]) + ("; ..." if len(names) > 8 else "")
        raise RecipeError(
            f"survey {survey.name!r}: {what} {wanted!r} is no candidate; candidates are {shown}."
            f"{nearest(wanted, names)}"
        )
    return found


def match(survey: Survey, wanted: str) -> str:
    """The candidate of this name, or the first one with this plan; empty when there is none."""
    candidates = survey.candidates()
    named = (c.name for c in candidates if wanted in (c.name, c.name.partition(", ")[0]))
    return next((c.name for c in candidates if c.name == wanted), next(named, ""))


def model_per_task(survey: Survey, baseline: str) -> str | None:
    """The candidate with plan `separate`; of several the one most like the baseline."""
    base = survey.find(baseline).settings
    alone = [c for c in survey.candidates() if c.recipe.plan == SINGLE]
    alike = [sum(base.get(key) == value for key, value in c.settings.items()) for c in alone]
    return alone[alike.index(max(alike))].name if alone else None


def followed(old: Survey, new: Survey, name: str, is_same: bool) -> str:
    """What a candidate is called after a change; empty when it is not there any more."""
    if is_same and name:
        place = [candidate.name for candidate in old.expanded].index(name)
        return new.expanded[place].name
    return match(new, name) or match(new, name.partition(", ")[0]) if name else ""
