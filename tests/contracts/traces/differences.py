"""The differences of two responses, field by field."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aioproducer.testing.fake_broker.version_profiles import VersionProfile
from tests.contracts.traces.exclusions import without_exclusions
from tests.contracts.traces.steps import Step

ABSENT = "(not there)"


class Difference(NamedTuple):
    step: int
    request: Step
    field: str
    real: object
    model: object

    def __str__(self) -> str:
        return f"step {self.step} {self.request}\n  {self.field}: real {self.real!r}, model {self.model!r}"


def differences(
    steps: Sequence[Step], profile: VersionProfile, *, real: Sequence[object], model: Sequence[object]
) -> list[Difference]:
    found = []
    for number, (step, *both) in enumerate(zip(steps, real, model, strict=True)):
        compared = [without_exclusions(step, profile, answer) for answer in both]
        found += [Difference(number, step, *field) for field in _fields(*compared, path="answer")]
    return found


def _fields(real: object, model: object, *, path: str) -> Iterator[tuple[str, object, object]]:
    if isinstance(real, dict) and isinstance(model, dict):
        for name in sorted({*real, *model}):
            yield from _fields(real.get(name, ABSENT), model.get(name, ABSENT), path=f"{path}.{name}")
    elif isinstance(real, list) and isinstance(model, list) and len(real) == len(model):
        for index, items in enumerate(zip(real, model, strict=True)):
            yield from _fields(*items, path=f"{path}[{index}]")
    elif real != model:
        yield path, real, model
