"""Every response that the package reads, with its reader: one row each, which a test holds complete."""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from aioproducer._protocol.messages import (
    API_VERSIONS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Api,
    decode_api_versions_response,
    decode_init_producer_id_response,
    decode_metadata_response,
)
from aioproducer._protocol.offset_messages import (
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    decode_offset_fetch_response,
    decode_txn_offset_commit_response,
)
from aioproducer._protocol.produce import decode_produce_response
from aioproducer._protocol.sasl.messages import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    decode_sasl_authenticate_response,
    decode_sasl_handshake_response,
)
from aioproducer._protocol.telemetry_messages import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    decode_get_telemetry_subscriptions_response,
    decode_push_telemetry_response,
)
from aioproducer._protocol.transaction_admin_messages import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
    decode_all_descriptions,
    decode_describe_producers_response,
    decode_describe_transactions_response,
    decode_list_transactions_response,
    decode_write_txn_markers_response,
)
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    decode_add_offsets_response,
    decode_add_partitions_response,
    decode_end_txn_response,
    decode_find_coordinator_response,
    decode_find_coordinators_response,
)
from aioproducer.testing import ApiKey
from tests.programs.fuzz.message_samples import ANY_TEXT, sample

ANSWERS: dict[Api, Callable[..., object]] = {
    PRODUCE: decode_produce_response,
    METADATA: functools.partial(decode_metadata_response, from_node=1),
    API_VERSIONS: decode_api_versions_response,
    INIT_PRODUCER_ID: decode_init_producer_id_response,
    FIND_COORDINATOR: functools.partial(decode_find_coordinator_response, key=ANY_TEXT),
    ADD_PARTITIONS_TO_TXN: decode_add_partitions_response,
    ADD_OFFSETS_TO_TXN: decode_add_offsets_response,
    TXN_OFFSET_COMMIT: decode_txn_offset_commit_response,
    END_TXN: decode_end_txn_response,
    LIST_TRANSACTIONS: decode_list_transactions_response,
    SASL_AUTHENTICATE: decode_sasl_authenticate_response,
}
"""Called with version and payload."""

OF_ONE_VERSION: dict[Api, Callable[[bytes], object]] = {
    OFFSET_FETCH: decode_offset_fetch_response,
    DESCRIBE_TRANSACTIONS: functools.partial(decode_describe_transactions_response, transactional_id=ANY_TEXT),
    DESCRIBE_PRODUCERS: decode_describe_producers_response,
    WRITE_TXN_MARKERS: decode_write_txn_markers_response,
    SASL_HANDSHAKE: decode_sasl_handshake_response,
    GET_TELEMETRY_SUBSCRIPTIONS: functools.partial(decode_get_telemetry_subscriptions_response, from_node=1),
    PUSH_TELEMETRY: decode_push_telemetry_response,
}
"""Called with the payload."""

READ_OTHERWISE: dict[str, tuple[Api, Callable[[bytes], object]]] = {
    "all coordinators": (FIND_COORDINATOR, decode_find_coordinators_response),
    "all transactions": (DESCRIBE_TRANSACTIONS, decode_all_descriptions),
}
"""A second decoder of the same responses: what it reads -> api, and the decoder; called with the payload."""


class Answer(NamedTuple):
    name: str
    whole: bytes
    decode: Callable[[bytes], object]


def answers() -> Iterator[Answer]:
    for api, decode in ANSWERS.items():
        for version in range(api.min_version, api.max_version + 1):
            yield _answer(api, version, functools.partial(decode, version))
    for api, decode in OF_ONE_VERSION.items():
        yield _answer(api, api.max_version, decode)
    for what, (api, decode) in READ_OTHERWISE.items():
        answer = _answer(api, api.max_version, decode)
        yield answer._replace(name=f"{what} of {answer.name}")


def _answer(api: Api, version: int, decode: Callable[[bytes], object]) -> Answer:
    name = ApiKey(api.key).schema_name
    return Answer(f"{name} v{version}", sample(name, version, "response"), decode)
