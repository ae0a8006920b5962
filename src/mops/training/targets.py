"""Targets of training rows: the labels of their files, smoothed, or mixed with teachers' answers.

Shapes: R rows, C classes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mops.config.training import Training
from mops.data.batches import Texts
from mops.errors import RecipeError
from mops.kinds.metrics import Answers, known
from mops.predict.bundle import Predictor, load_bundle
from mops.tasks import Task


def soften(task: Task, targets: Answers, training: Training, taught: Answers | None) -> Answers:
    """The targets to train on: class numbers or values, or R x C probabilities of the classes.

    Label smoothing (Szegedy et al. 2016): 1 - s for the class, and s spread over all of them.
    """
    smoothing, weight = training.label_smoothing, training.teacher_weight
    if not smoothing and taught is None:
        return targets
    is_known = known(targets)
    soft = task.answer.soften(task, targets[is_known], smoothing)
    if taught is not None:
        soft = (1 - weight) * soft + weight * taught[is_known]
    unknown = None if soft.dtype == object else np.nan
    whole = np.full((len(targets), *soft.shape[1:]), unknown, dtype=soft.dtype)
    whole[is_known] = soft
    return whole


def ask_teachers(
    training: Training,
    tasks: Mapping[str, Task],
    texts: Mapping[str, Sequence[Texts]],
    device: str,
) -> dict[str, Answers]:
    """Task -> the mean answer of the teachers that know it: probabilities of classes, or values.

    Born-again networks (Furlanello et al. 2018), with the mean of an ensemble as in Hinton et al.
    2015, at temperature 1.
    """
    answers: dict[str, list[Answers]] = {name: [] for name in tasks}
    for folder in training.teachers:
        predictor = Predictor(load_bundle(folder), device)
        known = {name: own for name, own in predictor.bundle.layout.tasks.items() if name in tasks}
        for name, own in known.items():
            if [own.labels, own.range] != [tasks[name].labels, tasks[name].range]:
                raise RecipeError(
                    f"training.teachers: {folder} has other labels for {name!r} than this "
                    "recipe; train it on the same task"
                )
        for name, given in predictor.predict_tasks({n: texts[n] for n in known}).items():
            is_probable = given.probabilities.size > 0
            answers[name].append(given.probabilities if is_probable else given.values)
    if training.teachers and not any(answers.values()):
        raise RecipeError(
            f"training.teachers: none of the models knows {', '.join(tasks)}; "
            "name models that were trained on these tasks"
        )
    return {name: np.mean(own, axis=0) for name, own in answers.items() if own}
