"""What is rare is in some seeds, always in the same ones, and changes nothing else of a plan."""

import dataclasses

import pytest

from tests.programs.simulation.families import FAMILIES, Family
from tests.programs.simulation.plan import draw_plan
from tests.programs.simulation.rare_options import rare_trouble

SEEDS = range(300)
WITH_RARE = [name for name, family in FAMILIES.items() if family.rare]


@pytest.mark.parametrize("name", WITH_RARE)
def test_every_rare_trouble_of_a_family_is_in_few_seeds(name: str) -> None:
    family = FAMILIES[name]
    drawn = [rare_trouble(family, seed) for seed in SEEDS]

    assert {trouble for troubles in drawn for trouble in troubles} == set(family.rare)
    assert 0.1 < sum(map(bool, drawn)) / len(drawn) < 0.3
    assert drawn == [rare_trouble(family, seed) for seed in SEEDS]


@pytest.mark.parametrize("name", WITH_RARE)
def test_plan_without_trouble_is_as_if_there_were_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family gets a rare trouble, and the seeds without it stay as they are."""
    spared = [seed for seed in SEEDS if not rare_trouble(FAMILIES[name], seed)][:20]
    plans = [draw_plan(name, seed) for seed in spared]
    without = dataclasses.replace(FAMILIES[name], rare=())
    monkeypatch.setitem(FAMILIES, name, without)

    assert [_drawn(draw_plan(name, seed)) for seed in spared] == [_drawn(plan) for plan in plans]


def test_family_without_rare_troubles_has_none() -> None:
    family: Family = dataclasses.replace(FAMILIES["D1"], rare=())

    assert [trouble for seed in SEEDS for trouble in rare_trouble(family, seed)] == []


def _drawn(plan: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(plan)
    return {each.name: getattr(plan, each.name) for each in dataclasses.fields(plan) if each.name != "family"}
