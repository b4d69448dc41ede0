"""Tries every order in which a scene can go, with a limited number of deviations from asyncio's own.

A choice is where the loop could have gone on in more than one way; a deviation is a choice made in another way than
asyncio's. From a schedule with deviations follow those with one more, at a later choice: so each is tried once.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.programs.simulation.history import Violation
from tests.programs.simulation.run import Verdict
from tests.programs.simulation.schedules import DeviatingSchedule
from tests.programs.simulation.stage import LAG_S, Scene, play

Deviation = tuple[int, int]  # number of the choice, and of the way taken, from 1 on

MOST_DEVIATIONS = 2


@dataclass(frozen=True, slots=True)
class Broken:
    """One schedule that broke an invariant."""

    scene: str
    deviations: tuple[Deviation, ...]
    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        return f"{self.violations[0]}\n  {self.command}"

    @property
    def command(self) -> str:
        text = ",".join(f"{choice}:{way}" for choice, way in self.deviations)
        return f"python -m tests.programs.simulation --scene {self.scene} --deviations {text or 'none'}"


@dataclass(slots=True)
class Found:
    schedules: int = 0
    choices: int = 0
    digests: set[int] = field(default_factory=set)  # different ends that the schedules came to
    broken: list[Broken] = field(default_factory=list)
    is_exhausted: bool = True


def search(scene: Scene, *, most_deviations: int = MOST_DEVIATIONS, most_schedules: int | None = None) -> Found:
    """Try all schedules of a scene, or `most_schedules` of them, drawn evenly, the same ones each time."""
    found = Found()
    draw = random.Random(0)
    left: list[tuple[Deviation, ...]] = [()]
    while left:
        if found.schedules == most_schedules:
            found.is_exhausted = False
            break
        deviations = left.pop(-1 if most_schedules is None else draw.randrange(len(left)))
        schedule = schedule_of(deviations)
        verdict = play(scene, schedule)
        _add(found, scene, deviations, verdict)
        if not deviations:
            found.choices = len(schedule.ways)
        if len(deviations) < most_deviations:
            left += [(*deviations, more) for more in _more(schedule.ways, deviations)]
    return found


def schedule_of(deviations: Sequence[Deviation]) -> DeviatingSchedule:
    return DeviatingSchedule(dict(deviations), lag_s=LAG_S)


def _add(found: Found, scene: Scene, deviations: tuple[Deviation, ...], verdict: Verdict) -> None:  # noqa: PLR0917
    found.schedules += 1
    found.digests.add(verdict.digest)
    if verdict.violations:
        found.broken.append(Broken(scene.name, deviations, verdict.violations))


def _more(ways: Sequence[int], deviations: Sequence[Deviation]) -> Iterator[Deviation]:
    """Every deviation at a choice after the last."""
    first = deviations[-1][0] + 1 if deviations else 0
    for choice in range(first, len(ways)):
        for way in range(1, ways[choice]):
            yield choice, way
