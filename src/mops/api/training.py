"""Train, with a bar where somebody sees it."""

from pathlib import Path

from mops.api.progress import TrainingScreen, is_watched
from mops.config.recipe import Recipe
from mops.data.compose import given_recipe
from mops.files import to_path
from mops.training import run
from mops.training.run import Run
from mops.training.tracking import Label, Watcher


def train(
    recipe: Recipe | str | Path,
    out: str | Path,
    watcher: Watcher | None = None,
    label: Label | None = None,
) -> Run:
    """Train what the recipe, or the one in a file, says into the folder `out`; resumes an
    interrupted run.

    A watcher learns how it goes; without one there is a progress bar on a terminal and in a
    notebook. `label` is the run's name in trackers; by default that of its folder.
    """
    recipe, out = given_recipe(recipe), to_path(out, "out")
    if watcher or not is_watched():
        return run.train(recipe, out, watcher, label)
    with TrainingScreen(recipe.sharing_plan().name) as screen:
        return run.train(recipe, out, screen, label)
