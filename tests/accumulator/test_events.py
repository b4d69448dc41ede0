"""The runtime answers every event that the parts report."""

from aioproducer._accumulator.events import ProducerEvents
from aioproducer._producer.runtime import ProducerRuntime


def test_runtime_has_a_method_for_each_event() -> None:
    events = {name for name in vars(ProducerEvents) if not name.startswith("_")}
    assert events
    assert events <= set(dir(ProducerRuntime))
