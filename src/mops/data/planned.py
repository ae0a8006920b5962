"""A run before its first step: starved tasks, weights that never learn, settings without effect."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import chain

from mops.config.recipe import Recipe
from mops.config.training import Training
from mops.data.schedule import Schedule, learning_in, schedule_warnings, task_budgets
from mops.plans.layout import Layout
from mops.plans.shapes import HeadShape
from mops.tasks import CORRELATIONS

PLAIN = Training()
SHOWN = 4  # owners in a warning
HEAD_DEFAULTS = {field.name: field.default for field in fields(HeadShape)}
HEAD_SETTINGS = {"mlp": ("depth", "width", "activation"), "cosine": ("project", "scale")}


@dataclass(frozen=True)
class PlannedRun:
    """A run before its first step, and the questions that its settings ask."""

    recipe: Recipe
    layout: Layout
    schedule: Schedule

    @property
    def training(self) -> Training:
        return self.recipe.training

    @cached_property
    def trained(self) -> set[str]:
        """The tasks that have a batch and a weight."""
        budgets = task_budgets(self.schedule).items()
        return {name for name, own in budgets if own.batches and self.training.learns(name)}

    @cached_property
    def schedules(self) -> set[str]:
        return {stage.training.schedule for stage in self.schedule.stages}

    @cached_property
    def learning(self) -> set[str]:
        """The owners that learn in any stage."""
        stages = self.schedule.stages
        return {own for stage in stages for own in learning_in(self.layout, self.schedule, stage)}

    @cached_property
    def tops(self) -> set[str]:
        """The owners of late layers and heads, which begin at random."""
        return {o for route in self.layout.routes.values() for o in (*route.late, route.head)}

    def encoder_learns(self) -> bool:
        """Whether anything below the late layers and the heads learns."""
        return bool(self.learning - self.tops)

    def lower_layers_learn(self) -> bool:
        """Whether anything below the last layer learns, where the decay of rates begins."""
        depth = self.layout.encoder.depth
        stages = (stage for r in self.layout.routes.values() for stage in r.stages[:depth])
        return any(self.learning & set(owners) for owners in stages)

    def combines_gradients(self) -> bool:
        """Whether two tasks of a step train the same weight."""
        for stage in self.schedule.stages:
            steps = self.schedule.steps[stage.first : stage.stop]
            together = {frozenset(step) & self.trained for step in steps}
            owners = learning_in(self.layout, self.schedule, stage)
            trainers = {frozenset(self.layout.trained_by[owner]) for owner in owners}
            if any(len(tasks & own) > 1 for tasks in together for own in trainers):
                return True
        return False

    def is_apart(self, task: str) -> bool:
        return self.layout.reading.of(task).texts_apart(self.layout.tasks[task].is_pair)

    def has_features(self, task: str) -> bool:
        """Whether the head of a task combines the vectors of two texts."""
        return self.is_apart(task) and self.layout.reading.head(task).kind != "cosine"

    def has_order(self, task: str) -> bool:
        """Whether the order of a pair's texts matters to the network."""
        has_concat = self.has_features(task) and "concat" in self.training.features
        return not self.is_apart(task) or has_concat or bool(self.layout.routes[task].feeds)

    def read_pairs(self) -> bool:
        """Whether all tasks that `pair` names, or any of them, have two texts."""
        tasks, given = self.layout.tasks, self.training.pair
        if isinstance(given, dict):
            return all(tasks[task].is_pair for task, mode in given.items() if mode == "bi")
        return any(task.is_pair for task in tasks.values())

    def weighs_tasks(self) -> bool:
        given = self.training.loss_weights
        if isinstance(given, dict):
            return self.trained.issuperset(task for task, weight in given.items() if weight)
        return given != "dwa" or len(self.trained) > 1  # the weight of a single task is always 1

    def has_heads(self, kind: str, setting: str) -> bool:
        """Whether each head with a value of its own for a setting is of the kind that has it."""
        heads, plain = self.layout.reading.heads.values(), HEAD_DEFAULTS[setting]
        return all(head.kind == kind for head in heads if getattr(head, setting) != plain)


# A setting of a recipe that is not at its default -> what it needs, and whether the run has that.
NEEDS: dict[str, tuple[str, Callable[[PlannedRun], bool]]] = {
    "plan.pull": (
        "two copies that learn",
        lambda run: bool(run.layout.l2_groups) or not run.layout.plan.pull,
    ),
    "tasks.split": (
        "a task without a `validation` file",
        lambda run: not any(e.split and e.validation for e in run.recipe.tasks.values()),
    ),
    "tasks.class_weights": (
        "a task that is trained",
        lambda run: run.trained.issuperset(
            name for name, entry in run.recipe.tasks.items() if entry.class_weights
        ),
    ),
    "training.pair": ("tasks with two texts", PlannedRun.read_pairs),
    "training.features": (
        "a task with `pair: bi` and a head that is no cosine",
        lambda run: any(map(run.has_features, run.layout.tasks)),
    ),
    **{
        f"training.head.{setting}": (
            f"a head of kind {kind}",
            partial(PlannedRun.has_heads, kind=kind, setting=setting),
        )
        for kind, settings in HEAD_SETTINGS.items()
        for setting in settings
    },
    "training.layer_decay": (
        "a part of the encoder below its last layer that learns",
        PlannedRun.lower_layers_learn,
    ),
    "training.dropout": ("a part of the encoder that learns", PlannedRun.encoder_learns),
    "training.r_drop": (
        "dropout where something learns",
        lambda run: bool(
            run.training.head_dropout or (run.training.dropout and run.encoder_learns())
        ),
    ),
    "training.label_smoothing": (
        "a task with labels that is trained",
        lambda run: any(run.layout.tasks[task].answer.has_labels for task in run.trained),
    ),
    "training.teacher_weight": ("`teachers`", lambda run: bool(run.training.teachers)),
    "training.temperature": (
        "`schedule: temperature`",
        lambda run: "temperature" in run.schedules,
    ),
    "training.staggered_share": (
        "`schedule: staggered`",
        lambda run: "staggered" in run.schedules,
    ),
    "training.task_steps": (
        "tasks that are trained",
        lambda run: run.trained.issuperset(run.training.task_steps),
    ),
    "training.stages.frozen": (
        "a plan whose encoder learns",
        lambda run: (
            run.layout.rates != run.layout.frozen_rates
            or not any(stage.is_frozen for stage in run.schedule.stages)
        ),
    ),
    "training.augment.swap": (
        "pairs that are read as one sequence, or `features` with concat",
        lambda run: all(
            map(run.has_order, run.training.augment.swap if run.training.augment else ())
        ),
    ),
    "training.loss_weights": ("tasks that are trained", PlannedRun.weighs_tasks),
    "training.dwa_steps": (
        "`loss_weights: dwa`",
        lambda run: run.training.loss_weights == "dwa",
    ),
    "training.gradients": (
        "two tasks that train the same weight in one step (a plan that shares, and `schedule: "
        "together` or `mixed`)",
        PlannedRun.combines_gradients,
    ),
    "training.early_stopping": (
        "at least two evaluations more than its number",
        lambda run: run.schedule.evaluations > 1 + (run.training.early_stopping or 0),
    ),
    "training.best_by": (
        "a trained task that is scored by a correlation",
        lambda run: any(run.layout.tasks[t].score_name in CORRELATIONS for t in run.trained),
    ),
}


def stuck_owners(run: PlannedRun) -> Iterator[str]:
    """Warnings about new weights on the routes of trained tasks that keep their initial values."""
    routes = {task: route for task, route in run.layout.routes.items() if task in run.trained}
    base = run.layout.plan.frozen if run.recipe.base else ()  # weights that were trained before
    moved = run.learning.union(*(run.layout.routes[task].owners for task in base))
    owners = dict.fromkeys(chain(*(route.owners for route in routes.values())))
    random = [owner for owner in owners if owner in run.tops - moved]
    sites = (site.parts.values() for route in routes.values() for site in chain(*route.adapters))
    idle = dict.fromkeys(chain(*(parts for parts in sites if not moved & set(parts))))
    for names, what in (
        (random, "random and never learns, but tasks that are trained are answered through it"),
        (list(idle), "at identity and never learns, so it adds nothing"),
    ):
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            yield (
                f"{', '.join(names[:SHOWN])}{more}: {what}; give it a rate above 0 in the plan's "
                "`rates`"
            )


def planned_warnings(run: PlannedRun, untrained: Collection[str] = ()) -> list[str]:
    """What a reader of the results should know; nothing on the budgets of `untrained` tasks."""
    budgets = schedule_warnings(run.schedule, run.training).items()
    told = (text for task, text in budgets if task not in untrained)
    return [*told, *stuck_owners(run), *idle_settings(run)]


def idle_settings(run: PlannedRun) -> Iterator[str]:
    """A warning for each setting that was changed and has no effect."""
    for key, (needs, is_met) in NEEDS.items():
        room, name, *_ = key.split(".")
        given = getattr(run.training, name) if room == "training" else None
        is_set = room != "training" or given != getattr(PLAIN, name)
        if is_set and not is_met(run):
            value = f" ({given})" if isinstance(given, str | int | float) else ""
            yield f"{key}{value} has no effect: it needs {needs}"
