"""The steps of `aioproducer diagnose`."""

from typing import Any, cast

from aioproducer.cli.diagnose.broker_check import BrokerCheck, Step
from aioproducer.cluster import Node
from aioproducer.config import ProducerConfig


async def steps_of(options: dict[str, object]) -> list[Step]:
    config = ProducerConfig(**cast("Any", options))
    host, port = config.bootstrap[0]
    return [step async for step in BrokerCheck(config, Node(-1, host, port), 10.0).steps()]


def names(steps: list[Step]) -> str:
    return " ".join(step.name if step.is_ok else f"{step.name}!" for step in steps).removeprefix("name ")
