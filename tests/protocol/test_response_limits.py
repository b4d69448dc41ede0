"""Real answers fit, with much to spare; others are refused far below the largest frame."""

import pytest

from aioproducer._protocol.messages import API_VERSIONS, INIT_PRODUCER_ID, METADATA
from aioproducer._protocol.offset_messages import OFFSET_FETCH, TXN_OFFSET_COMMIT
from aioproducer._protocol.produce import largest_produce_response
from aioproducer._protocol.response_limits import SMALL_RESPONSE, largest_response
from aioproducer._protocol.telemetry_messages import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from aioproducer._protocol.transaction_admin_messages import LIST_TRANSACTIONS
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
)


@pytest.mark.parametrize("api", [API_VERSIONS, METADATA, LIST_TRANSACTIONS])
def test_answers_that_do_not_depend_on_the_request(api: object) -> None:
    """ApiVersions is small before the broker is known; a description of the cluster has any size."""
    limit = largest_response(api.key, 1_000_000)  # type: ignore[attr-defined]  # an Api

    assert limit == (SMALL_RESPONSE if api is API_VERSIONS else None)


@pytest.mark.parametrize(
    "api", [INIT_PRODUCER_ID, FIND_COORDINATOR, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT]
)
def test_answers_that_name_what_the_request_names(api: object) -> None:
    """A partition takes four bytes of the request, and six of the answer."""
    assert largest_response(api.key, 4_000) == SMALL_RESPONSE + 256_000  # type: ignore[attr-defined]  # an Api


def test_answer_with_committed_offsets_has_their_metadata() -> None:
    """Up to 4 KiB for each of the four bytes that a partition takes."""
    limit = largest_response(OFFSET_FETCH.key, 4_000)

    assert limit is not None
    assert limit > 1_000 * 4_096


def test_answers_to_telemetry_are_small() -> None:
    """A list of prefixes that operators have typed, however large the push was."""
    assert largest_response(GET_TELEMETRY_SUBSCRIPTIONS.key, 30) == SMALL_RESPONSE + 30 * 64
    assert largest_response(PUSH_TELEMETRY.key, 1_000_000) == SMALL_RESPONSE


def test_answer_to_produce_has_a_reason_for_each_record() -> None:
    assert largest_produce_response(1, 0) < 2 * SMALL_RESPONSE
    assert largest_produce_response(2, 10_000) > 10_000 * 1_000
