"""Many runs at once: small networks on one frozen encoder, whose texts are encoded once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mops.config.methods import check_solver_installed
from mops.config.recipe import Recipe
from mops.data.dataset import Dataset, dataset_key, read_dataset
from mops.errors import RecipeError, RunError
from mops.model.sources import EncoderSource, find_encoder
from mops.record import read_record
from mops.training.batched.family import Planned, family_of, grouped, train_family, why_not
from mops.training.batched.vectors import Features
from mops.training.machine import prepare_machine, restored_threads
from mops.training.prepare import Prepared
from mops.training.run import Run, is_finished
from mops.training.tracking import Label, label_of, refuse_missing_trackers
from mops.training.trainer import Silent, Watcher


@restored_threads()
def train_many(
    recipes: Sequence[Recipe],
    outs: Sequence[str | Path],
    watcher: Watcher | None = None,
    features: Features | None = None,
    labels: Sequence[Label] | None = None,
) -> list[Run | RunError]:
    """Train recipes that differ only in what they add to a frozen encoder, as `train` would.

    Each folder gets what `train` writes into it. A run that fails gives its error, and the others
    go on; the same call goes on with interrupted runs. `features` gives the pooled vectors of a
    task's sequences; without it they are computed here. `labels` are what trackers call the runs.
    """
    watcher, folders = watcher or Silent(), [Path(out) for out in outs]
    if len(set(folders)) != len(recipes) or len(folders) != len(recipes):
        raise RecipeError(
            f"{len(recipes)} recipes and {len(set(folders))} different folders; "
            "every recipe needs a folder of its own"
        )
    ready = prepare_many(recipes, watcher.phase)
    called = labels or [label_of(folder) for folder in folders]
    planned = [Planned(*of) for of in zip(ready, folders, called, strict=True)]
    for one in planned:
        if reason := why_not(one.ready):
            raise RecipeError(
                f"{one.folder}: this run cannot be trained beside others: {reason}; "
                "train it alone with `mops train`"
            )
    results: dict[Path, Run | RunError] = dict(finished(planned))
    left = [one for one in planned if one.folder not in results]
    for family in grouped(left, lambda one: family_of(one.ready)):
        results |= train_family(family, watcher, features)
    return [results[folder] for folder in folders]


def finished(planned: Sequence[Planned]) -> Iterator[tuple[Path, Run]]:
    """What is there already; a folder that holds another run is refused before anything starts."""
    for one in planned:
        if is_finished(one.folder, one.ready):
            shutil.rmtree(one.folder / "state", ignore_errors=True)
            record = read_record(one.folder / "record.json")
            yield one.folder, Run(one.folder, record, was_finished=True)


# ------------------------------------------------------------------ read once


def prepare_many(recipes: Sequence[Recipe], tell: Callable[[str], None]) -> list[Prepared]:
    """`prepare` for every recipe; the same files are read once."""
    datasets: dict[str, Dataset] = {}
    sources: dict[str, EncoderSource] = {}
    found = []
    for recipe in recipes:
        device = prepare_machine(recipe.training)
        check_solver_installed(recipe.training.gradients)
        refuse_missing_trackers(recipe.training)
        if (key := dataset_key(recipe)) not in datasets:
            tell("reading data")
            datasets[key] = read_dataset(recipe)
        source = sources.setdefault(recipe.encoder, find_encoder(recipe.encoder))
        whole = recipe.with_labels(datasets[key].tasks)
        layout = whole.layout(datasets[key].tasks, source.shape)
        found.append(Prepared(whole, datasets[key], source, layout, device))
    return found
