"""Committed offsets of a consumer group, read once no open transaction can change them.

    FindCoordinator ──▶ OffsetFetch, stable ──▶ offsets
          ▲                   │ UNSTABLE_OFFSET_COMMIT, a transaction is open: pause, then try again
          └── NOT_COORDINATOR, unknown node, connection lost: pause, then try again

Source: ConsumerCoordinator.fetchCommittedOffsets in Apache Kafka; KIP-447.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer._network.node_connection import label_of
from aioproducer._network.refusals import is_for_good
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.transaction_messages import (
    FIND_COORDINATOR,
    NO_OFFSET,
    OFFSET_FETCH,
    CoordinatorType,
    decode_find_coordinator_response,
    decode_offset_fetch_response,
    encode_find_coordinator_request,
    encode_offset_fetch_request,
)
from aioproducer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    ProtocolError,
    TransactionTimeoutError,
)
from aioproducer.records import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._network.network_client import NetworkClient
    from aioproducer._network.requests import PendingCalls
    from aioproducer._timing.retry_backoff import ExponentialBackoff

Offsets = dict[TopicPartition, OffsetAndMetadata | None]


@dataclass(slots=True)
class _Attempts:
    count: int = 0
    last: KafkaError | None = None
    waits_for: str = ""  # the request that is under way


class CommittedOffsets:
    """Asks the coordinators of groups."""

    def __init__(
        self, client: NetworkClient, metadata: MetadataRefresher, *, backoff: ExponentialBackoff, calls: PendingCalls
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._backoff = backoff
        self._calls = calls

    async def fetch(self, group_id: str, partitions: Collection[TopicPartition], *, timeout_s: float) -> Offsets:
        """Return the next offset to read of each partition; None where nothing is committed.

        Args:
            partitions: no request is sent if empty.

        Raises:
            TransactionTimeoutError: a transaction over them is still open, or no broker answers.
            GroupAuthorizationError: the user may not describe the group.
            UnsupportedVersionError: the coordinator is older than Kafka 2.5, which also returns offsets of open
                transactions.
            KafkaError: another refusal, or the producer has closed or failed.
        """
        if not partitions:
            return {}
        attempts = _Attempts()
        try:
            async with self._calls.within(timeout_s):
                return await self._fetch_until_stable(group_id, partitions, attempts)
        except TimeoutError:
            why = attempts.last or attempts.waits_for
            text = f"no committed offsets of group {group_id!r} after {timeout_s:g} s: {why}"
            raise TransactionTimeoutError(text, last_broker_error=attempts.last) from None

    async def _fetch_until_stable(
        self, group_id: str, partitions: Collection[TopicPartition], attempts: _Attempts
    ) -> Offsets:
        while True:
            try:
                return await self._fetch(group_id, partitions, attempts)
            except BrokerError as error:
                if not error.retriable:
                    raise
                attempts.last = error
            except (BrokerConnectionError, AuthenticationError) as error:
                if isinstance(error, AuthenticationError) and is_for_good(error):
                    raise
                attempts.last = error
                self._metadata.request_update("coordinator_unreachable")
            await asyncio.sleep(self._backoff.delay_s(attempts.count))
            attempts.count += 1

    async def _fetch(self, group_id: str, partitions: Collection[TopicPartition], attempts: _Attempts) -> Offsets:
        attempts.waits_for = "FindCoordinator waits for any broker"
        found = await self._client.request(
            FIND_COORDINATOR,
            lambda version: encode_find_coordinator_request(version, group_id, CoordinatorType.GROUP),
            lambda reply: decode_find_coordinator_response(reply.version, reply.payload, key=group_id),
        )
        _check(found.error_code, group_id)
        attempts.waits_for = f"OffsetFetch waits for {label_of(found.node)}"
        response = await self._client.request(
            OFFSET_FETCH,
            lambda _: encode_offset_fetch_request(group_id, partitions, require_stable=True),
            lambda reply: decode_offset_fetch_response(reply.payload),
            coordinator=found.node,
        )
        _check(response.error_code, group_id)
        committed: Offsets = {}
        for fetched in response.offsets:
            _check(fetched.error_code, group_id)
            is_committed = fetched.offset != NO_OFFSET
            topic_partition = TopicPartition(fetched.topic, fetched.partition)
            committed[topic_partition] = OffsetAndMetadata(fetched.offset, fetched.metadata) if is_committed else None
        return _of_each(partitions, committed, group_id)


def _of_each(partitions: Collection[TopicPartition], committed: Offsets, group_id: str) -> Offsets:
    try:
        return {partition: committed[partition] for partition in partitions}
    except KeyError as error:
        (left_out,) = error.args  # "no offset" instead would make the caller read all of it again
        text = f"offsets of group {group_id!r}: the coordinator has answered without a word on {left_out}"
        raise ProtocolError(text) from None


def _check(code: int, group_id: str) -> None:
    if code == ErrorCode.NONE:
        return
    row = ErrorCode.of(code)
    hint = "; grant Describe on the group" if row is ErrorCode.GROUP_AUTHORIZATION_FAILED else ""
    is_passing = row is not None and (row.retriable or row.renegotiate)
    text = f"offsets of group {group_id!r}: {ErrorCode.in_words(code)}{hint}"
    refusal = BrokerError.of(code, text, retriable=is_passing)
    raise refusal
