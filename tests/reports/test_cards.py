"""Cards: what a candidate is, what it costs, and how to train it again."""

from __future__ import annotations

import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mops.data.compose import compose_recipe
from mops.plans.catalog import parse_plan
from mops.reports.cards import Card, make_cards
from mops.reports.source import Source, read_source
from mops.yaml_io import parse_yaml
from surveys import make_survey

PLANS = ("shared", "hybrid:2", "frozen+shared")
RATES = {"training.learning_rate": [2e-5, 1e-4]}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("made") / "a survey"
    made = make_survey(folder, PLANS, axes=RATES, warnings={"shared": ("too good",)})
    return read_source(made)


@pytest.fixture(scope="module")
def cards(source: Source) -> tuple[Card, ...]:
    return make_cards(source)


def test_one_for_each_candidate_in_their_order(source: Source, cards: tuple[Card, ...]) -> None:
    assert [card.candidate for card in cards] == [one.name for one in source.results.candidates]
    assert {card.plan for card in cards} == set(PLANS)


def test_what_they_say_is_what_the_table_of_plans_says(cards: tuple[Card, ...]) -> None:
    for card in cards:
        about = parse_plan(card.plan).about
        assert card.picture is not None and card.picture.caption.lower() == f"{about.lower()}."
        assert ElementTree.fromstring(card.picture.svg).tag.endswith("svg")


def test_facts_are_those_of_the_summary(source: Source, cards: tuple[Card, ...]) -> None:
    for card, one in zip(cards, source.results.candidates, strict=True):
        facts = dict(card.facts)
        for task in ("overall", *one.tasks):
            assert facts[task].startswith(f"{one.scores[task].mean:.3f} ± ")
        assert facts["seeds"] == "1, 2"
        assert {"parameters", "trained", "training", "latency"} <= set(facts)


def test_the_recipe_is_what_differs(cards: tuple[Card, ...]) -> None:
    for card in cards:
        found = parse_yaml(card.recipe)
        assert found["plan"] == card.plan and set(found) == {"plan", "training"}
        assert set(found["training"]) == {"learning_rate", "seed"}
        assert card.candidate.endswith(f"={found['training']['learning_rate']:g}")


def test_the_command_repeats_the_best_training(source: Source, cards: tuple[Card, ...]) -> None:
    """Its recipe is that of the trial with the best validation score."""
    for card in cards:
        words = shlex.split(card.command)
        assert words[:3] == ["mops", "train", "--config"]
        again = compose_recipe(config=Path(words[3]))
        trials = source.trials_of(card.candidate)
        best = max(trials, key=lambda trial: trial.record.scores.overall["validation"]["overall"])
        assert again.to_data() == best.recipe.to_data()


def test_warnings_are_told_once(cards: tuple[Card, ...]) -> None:
    assert {card.warnings for card in cards} == {("too good",), ()}


def test_a_run_has_one_card(source: Source) -> None:
    (card,) = make_cards(read_source(source.trials[0].folder))
    assert set(parse_yaml(card.recipe)) == {"encoder", "tasks", "plan", "training"}
    words = shlex.split(card.command)
    assert Path(words[3]) == source.trials[0].folder / "recipe.yaml"


def test_without_a_shape_there_is_no_picture(source: Source) -> None:
    bare = read_source(source.folder)
    for trial in bare.trials:
        trial.record.meta_info.encoder_shape.clear()  # type: ignore[attr-defined]
    assert {card.picture for card in make_cards(bare)} == {None}
