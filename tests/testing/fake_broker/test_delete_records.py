"""DeleteRecords moves the start of a log."""

from importlib import import_module

import pytest

from aioproducer.testing import ApiKey
from tests.testing.model_network import ModelNetwork, batch


def deleted(network: ModelNetwork, offset: int, *, topic: str = "t", version: int = 2) -> tuple[int, int]:
    message = import_module(f"kio.schema.delete_records.v{version}.request")
    place = message.DeleteRecordsPartition(partition_index=0, offset=offset)
    asked = (message.DeleteRecordsTopic(name=topic, partitions=(place,)),)
    answer = network.client().ask(ApiKey.DELETE_RECORDS, version, topics=asked)
    (found,) = answer.topics[0].partitions
    return int(found.error_code), found.low_watermark


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("offset, answer", [(3, (0, 3)), (-1, (0, 4)), (0, (0, 0)), (5, (1, -1)), (-2, (1, -1))])
def test_start_moves_up_to_the_high_watermark(offset: int, answer: tuple[int, int], version: int) -> None:
    """Offset -1 deletes everything; an offset beyond the log gets 1 OFFSET_OUT_OF_RANGE."""
    network = ModelNetwork()
    for _ in range(2):
        network.client().produce("t", batch([b"a", b"b"]))

    assert deleted(network, offset, version=version) == answer
    assert network.partition().log.start_offset == max(0, answer[1])


def test_unknown_topic() -> None:
    assert deleted(ModelNetwork(), 0, topic="none") == (3, -1)
