"""Sends single requests to any broker, to a coordinator, or to the leader of a partition."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final, Generic

from aioproducer._logs import event_log
from aioproducer._network.context import NetworkSettings, Timer
from aioproducer._network.network_client import NetworkClient
from aioproducer._network.response_future import RawResponse, ResponseT
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    METADATA,
    Api,
    MetadataResponse,
    decode_metadata_response,
    encode_metadata_request,
)
from aioproducer._protocol.transaction_messages import (
    FIND_COORDINATOR,
    CoordinatorResponse,
    CoordinatorType,
    decode_find_coordinator_response,
    encode_find_coordinator_request,
)
from aioproducer._timing.retry_backoff import ExponentialBackoff
from aioproducer._version import VERSION
from aioproducer.cli.waiting import SETUP_TIMEOUT_MS, explained_wait
from aioproducer.cluster import Cluster
from aioproducer.errors import BrokerConnectionError, BrokerError, KafkaError

CLIENT_ID: Final = "aioproducer-txn"
REQUEST_TIMEOUT_MS: Final = 5_000
PAUSES_MS: Final = (50, 500)
"""Pause between attempts, at first and at most."""


@dataclass(frozen=True, slots=True)
class Inquiry(Generic[ResponseT]):
    """A request to one broker."""

    api: Api
    body: Callable[[int], bytes]
    """Encodes the request in a version."""
    read: Callable[[RawResponse], ResponseT]
    """Decodes the response; may raise only ProtocolError."""
    check: Callable[[ResponseT], None]
    """Raises the error in a response; the request is repeated after a retriable `BrokerError`."""


class LoopTimers:
    """Timers of the event loop, since there is no sender to fire them."""

    def schedule(self, when: float, callback: Callable[[float], None]) -> Timer:
        """Call back at `when`, with the time."""
        loop = asyncio.get_running_loop()
        return loop.call_at(when, lambda: callback(loop.time()))


class NoListener:
    """Events of the network go nowhere: no sender and no metadata follow them."""

    def wake(self) -> None:
        """Nothing waits for it."""

    node_failed = node_tried_again = wake


class ClusterQuestions:
    """Requests to one cluster; made by `asking`.

    Args:
        client: started.
        timeout_s: for each request with all its attempts.
    """

    def __init__(self, client: NetworkClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._backoff = ExponentialBackoff(*PAUSES_MS, random=Random())  # noqa: S311  # jitter
        self.cluster = Cluster.empty()
        """From the last `look`."""
        self.last_error: KafkaError | None = None
        """Error of the last failed attempt."""

    async def look(self, topics: Sequence[str] | None = ()) -> Cluster:
        """Ask for nodes and leaders of topics; None for all topics.

        Raises:
            KafkaError: no answer in time.
        """

        def body(version: int) -> bytes:
            asked = encode_metadata_request(version, topics or [], allow_auto_topic_creation=False)
            if topics is not None:
                return asked
            every, none = (b"\x00", b"\x01") if METADATA.is_flexible(version) else (b"\xff" * 4, b"\x00" * 4)
            return every + asked[len(none) :]

        def read(answer: RawResponse) -> MetadataResponse:
            return decode_metadata_response(answer.version, answer.payload, from_node=answer.node_id)

        answer = await self._until_answered(lambda: self._client.request(METADATA, body, read))
        self.cluster = self.cluster.merge(answer, asyncio.get_running_loop().time())
        self._client.update_nodes(self.cluster)
        return self.cluster

    async def of_node(self, node_id: int, inquiry: Inquiry[ResponseT]) -> ResponseT:
        """Ask one broker that `look` found.

        Raises:
            KafkaError: no answer in time, or a refusal.
        """
        return await self._until_answered(lambda: self._ask(node_id, inquiry))

    async def of_coordinator(self, transactional_id: str, inquiry: Inquiry[ResponseT]) -> ResponseT:
        """Ask the current coordinator of a transactional id.

        Raises:
            KafkaError: no answer in time, or a refusal.
        """

        async def ask() -> ResponseT:
            return await self._ask(await self._coordinator(transactional_id), inquiry)

        return await self._until_answered(ask)

    async def _ask(self, node_id: int, inquiry: Inquiry[ResponseT]) -> ResponseT:
        answer = await self._client.request(inquiry.api, inquiry.body, inquiry.read, node_id=node_id)
        inquiry.check(answer)
        return answer

    async def _coordinator(self, transactional_id: str) -> int:
        def body(version: int) -> bytes:
            return encode_find_coordinator_request(version, transactional_id, CoordinatorType.TRANSACTION)

        def read(answer: RawResponse) -> CoordinatorResponse:
            return decode_find_coordinator_response(answer.version, answer.payload, key=transactional_id)

        found = await self._client.request(FIND_COORDINATOR, body, read)
        raise_refusal(found.error_code, f"coordinator of {transactional_id!r}")
        if found.node_id not in self.cluster.nodes:
            await self.look()
        return found.node_id

    async def _until_answered(self, ask: Callable[[], Awaitable[ResponseT]]) -> ResponseT:
        """Repeat after retriable errors until the time-out.

        Raises:
            KafkaError: no answer in time, or a refusal.
        """
        self.last_error = None
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._ask_again(ask)
        except TimeoutError:
            why = "" if self.last_error is None else f": {self.last_error}"
            raise KafkaError(f"no answer in {self._timeout_s:g} s{why}") from None

    async def _ask_again(self, ask: Callable[[], Awaitable[ResponseT]]) -> ResponseT:
        failures = 0
        while True:
            try:
                return await ask()
            except BrokerConnectionError as error:
                self.last_error = error
            except BrokerError as error:
                if not error.retriable:
                    raise
                self.last_error = error
            await asyncio.sleep(self._backoff.delay_s(failures))
            failures += 1


@asynccontextmanager
async def asking(
    bootstrap: Sequence[tuple[str, int]], timeout_s: float, *, client_id: str = CLIENT_ID
) -> AsyncIterator[ClusterQuestions]:
    """Connect for the block, and learn the nodes of the cluster; one line on standard error explains a long wait.

    Args:
        bootstrap: (host, port) pairs.
        timeout_s: for each request.
        client_id: for the brokers' logs.

    Raises:
        KafkaError: no answer in time.
    """
    client = NetworkClient(
        bootstrap=bootstrap,
        settings=NetworkSettings(
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            connection_setup_timeout_ms=min(SETUP_TIMEOUT_MS, max(1, int(timeout_s * 400))),
            software_version=VERSION,
        ),
        timers=LoopTimers(),
        random=Random(),  # noqa: S311  # jitter
        events=NoListener(),
        log=event_log(client_id),
        client_id=client_id,
    )
    client.start(asyncio.get_running_loop())
    try:
        questions = ClusterQuestions(client, timeout_s)
        servers = ",".join(f"{host}:{port}" for host, port in bootstrap)
        async with explained_wait(f"an answer from {servers}", timeout_s, lambda: questions.last_error):
            await questions.look()
        yield questions
    finally:
        await client.close()


def raise_refusal(code: int, what: str) -> None:
    """Do nothing for 0.

    Raises:
        BrokerError: for any other code; retriable if repeating may help.
    """
    if code == ErrorCode.NONE:
        return
    row = ErrorCode.of(code)
    is_passing = row is not None and (row.retriable or row.renegotiate)
    refusal = BrokerError.of(code, f"{what}: {ErrorCode.in_words(code)}", retriable=is_passing)
    raise refusal
