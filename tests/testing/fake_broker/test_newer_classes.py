"""The classes of messages that kio does not have yet, beside the bytes of Kafka's own classes."""

import dataclasses
import json
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from aioproducer.testing import ApiKey
from tests.testing.kio_classes import read, schema, written

GOLDEN: dict[str, str] = json.loads((Path(__file__).parents[2] / "protocol" / "golden" / "messages.json").read_text())
"""Made by Kafka 4.4's own classes; see make_messages.jsh beside it."""

TOPIC_ID = uuid.UUID(int=(1 << 64) + 2)
API_VERSIONS = {"client_software_name": "aioproducer", "client_software_version": "1.2"}
OFFSET = {"partition_index": 1, "committed_offset": 2**40, "committed_leader_epoch": 3, "committed_metadata": "seen"}
OF_TXN = {
    "transactional_id": "x",
    "group_id": "g",
    "producer_id": 77,
    "producer_epoch": 8,
    "generation_id": 4,
    "member_id": "m",
    "group_instance_id": "i",
}
THROTTLED = {"throttle_time": timedelta(milliseconds=5)}
HELD = {"partition_index": 1, "error_code": ErrorCode.unknown_topic_id}
DELETED = {"group_id": "g", "error_code": ErrorCode.group_id_not_found, "error_message": "no"}
SAMPLES: dict[str, tuple[ApiKey, int, dict[str, object]]] = {
    "api_versions request, any broker": (ApiKey.API_VERSIONS, 5, API_VERSIONS),
    "api_versions request, node 7 of a cluster": (
        ApiKey.API_VERSIONS,
        5,
        {**API_VERSIONS, "cluster_id": "cluster", "node_id": 7},
    ),
    "api_versions response, another node": (
        ApiKey.API_VERSIONS,
        5,
        {"error_code": ErrorCode.rebootstrap_required, "throttle_time": timedelta(), "api_keys": ()},
    ),
    "txn_offset_commit request": (
        ApiKey.TXN_OFFSET_COMMIT,
        6,
        {**OF_TXN, "topics": ({"topic_id": TOPIC_ID, "partitions": (OFFSET,)},)},
    ),
    "txn_offset_commit response": (
        ApiKey.TXN_OFFSET_COMMIT,
        6,
        {**THROTTLED, "topics": ({"topic_id": TOPIC_ID, "partitions": (HELD,)},)},
    ),
    "delete_groups request": (ApiKey.DELETE_GROUPS, 3, {"groups_names": ("g",)}),
    "delete_groups response": (ApiKey.DELETE_GROUPS, 3, {**THROTTLED, "results": (DELETED,)}),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_message_has_the_bytes_of_kafkas_own_class(name: str) -> None:
    api, version, fields = SAMPLES[name]
    data = bytes.fromhex(GOLDEN[name])

    entity = read(schema(api, version, "request" if " request" in name else "response"), data)

    assert written(entity) == data
    assert fields.items() <= dataclasses.asdict(entity).items()
