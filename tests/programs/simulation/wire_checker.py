"""Looks at every frame between producer and brokers: what no caller can see is checked here.

* SEQUENCE: one identity (producer id, epoch, sequence) of a partition names one record, for the whole run.
* EPOCH: a partition's epoch never goes back.
* SIZE: no batch of several records is larger than `batch_size`, and the batches of no request than `max_request_size`.
* TIMES: a batch that says how late its latest record is says it right.
* IN_FLIGHT: no more Produce requests in flight on a connection than configured.
* PACE: one Metadata request in flight, and a second to another node only where the first is not answered; where
  authentications hold requests, one to each node.
* RETRIES: no batch is sent more often than `retries` allow, or again and again without a pause (`ResendChecker`).
* IDLE: no connection is used again after `connections_max_idle_ms` without use.
"""

from __future__ import annotations

import math
import struct
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.apis.produce import DecodedProduce, ProduceResult, decode_produce
from aioproducer.testing.fake_broker.exchange import Exchange, read_payload, read_request_header
from aioproducer.testing.fake_broker.log.record_batch import BatchHeader, decode_records, read_header
from aioproducer.testing.fake_broker.wire.primitives import Reader
from tests.programs.simulation.history import History
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.simulated_transport import SimulatedTransport

Key = tuple[int, int]

_NAMES: Final = {int(api): api.name for api in ApiKey}
_HEAD: Final = struct.Struct(">ihhi")
_CORRELATION: Final = struct.Struct(">ii")
_PRODUCE: Final = int(ApiKey.PRODUCE)
_INIT: Final = int(ApiKey.INIT_PRODUCER_ID)
_METADATA: Final = int(ApiKey.METADATA)
_HANDSHAKE: Final = int(ApiKey.API_VERSIONS)
_OF_SASL: Final = {int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)}
_HEARD: Final = frozenset(
    (
        ApiKey.PRODUCE,
        ApiKey.METADATA,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.FIND_COORDINATOR,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
    )
)
"""Requests whose responses may ask for a pause; the handshake comes before any."""

_IDLE: Final = "connections_max_idle_ms"
_NO_PAUSE: Final = (0.0, 0, 0, 0.0)
_TICK_S: Final = 0.001
_LATE_S: Final = 0.01  # tolerated lateness of closing a connection: a timer's tick, and the following turns of the loop
_SILENCE_S: Final = 0.5  # a node that answers Metadata with silence for so long is no reason not to ask another


SPREAD: Final = 0.8

AT_ONCE: Final = 6
"""Attempts to connect to one address that may come without a pause: as a bootstrap address, as a node, and again after
a connection that was closed for being idle."""


SMALLEST_LIMIT: Final = 512  # bytes to which a topic's batches are cut down at most, however small `batch_size` is

LOOKS_INTO_REQUESTS: Final = 4
"""One in so many seeds decodes every Produce request when it is written, which costs a tenth of a run.

In all with outages: what is sent after batches that were given up on the wire is where identities go wrong.
"""

LOOKS_AT_TIMES: Final = 8  # one in so many seeds, which are among those, decodes every record, too


class Fate(Enum):
    """State of a request, as far as a second copy of it is concerned."""

    OPEN = auto()
    REFUSED = auto()
    MAY_REPEAT = auto()


class WireChecker:
    def __init__(  # noqa: PLR0915  # one line per fact
        self, history: History, plan: Plan, clock: Callable[[], float]
    ) -> None:
        self.violated = history.violated
        self.error_codes: Counter[tuple[str, int]] = Counter()  # (API, error code) that brokers answered -> how often
        self.faults: Counter[str] = Counter()  # fault -> how often it had an effect
        self.requests: Counter[str] = Counter()
        self._oldest_since: dict[int, float] = {}  # connection -> when its oldest request became that
        self._refreshes: deque[float] = deque(maxlen=AT_ONCE)
        self._refresh_pause_s = SPREAD * plan.number("retry_backoff_ms") / 1000
        self._attempts: dict[str, deque[float]] = {}  # to connect to an address: when, the last few
        self._pause_s = SPREAD * plan.number("reconnect_backoff_ms") / 1000
        self._is_hostile = bool({"hostile bytes", "lies"} & set(plan.enabled))
        self._history = history
        self._is_recording = history.is_recording
        self._max_in_flight = plan.number("max_in_flight_requests_per_connection")
        self._is_answered = plan.acks != 0
        is_looked_into = "outage" in plan.enabled or plan.seed % LOOKS_INTO_REQUESTS == 0
        self._looks_into_requests = history.is_recording or is_looked_into
        self._looks_at_times = plan.seed % LOOKS_AT_TIMES == 0
        self._batch_size = max(plan.number("batch_size"), SMALLEST_LIMIT)
        self._max_request_size = plan.options.get("max_request_size", math.inf)
        self._request_timeout_s = plan.number("request_timeout_ms") / 1000
        self._clock = clock
        self._is_transactional = plan.family.is_transactional
        self._resends = ResendChecker(history, plan)
        self._used: dict[int, float] = {}  # connection -> when a request or an answer was the last on it
        self._authenticates = bool(plan.mechanism)
        self._most_hedged = max(1, plan.brokers - 1) if plan.mechanism else 1  # several may wait for authentications
        self._held_s = 1.0 if plan.mechanism else 0.0  # for so long a request may wait for an authentication
        unread_ms = 0 if self._is_answered else plan.number("request_timeout_ms")  # what is not read keeps it in use
        self._max_idle_s = max(plan.number(_IDLE), unread_ms) / 1000 if _IDLE in plan.options else math.inf
        self._metadata_in_flight: dict[tuple[int, int], float] = {}  # -> when it was asked
        self._appended: dict[tuple[int, int], bool] = {}  # (connection, correlation id) -> every batch is in a log
        self._throttles: dict[tuple[int, int], int] = {}  # ms that the answer to a request asks to pause
        self._pauses: dict[int, tuple[float, int, int, float]] = {}  # node -> (until, on connection, by API, heard at)
        self._refused: set[tuple[int, int]] = set()  # the producer knows that something was not appended
        self._epochs: dict[tuple[object, int, int], int] = {}  # (topic, partition, id) -> the last that was sent
        self._sequences: dict[tuple[object, int, int, int, int], tuple[int, bytes]] = {}

    # Faults

    def fired(self, code: str) -> None:
        self.faults[code] += 1

    # Connections

    def connecting(self, host: str) -> None:
        """PACE: the producer begins to connect, not again and again without a pause."""
        now = self._clock()
        lately = self._attempts.setdefault(host, deque(maxlen=AT_ONCE))
        if len(lately) == AT_ONCE and now < lately[0] + self._pause_s:
            self.violated("PACE", f"{AT_ONCE + 1} attempts to connect to {host} in {now - lately[0]:.6f} s")
        lately.append(now)

    def connected(self, transport: SimulatedTransport) -> None:
        self._history.note("network", "connection %d to node %d is open", transport.number, transport.node.number)

    def lost(self, transport: SimulatedTransport) -> None:
        """A connection is gone, and with it what was in flight on it."""
        waited_s = self._clock() - self._oldest_since.pop(transport.number, self._clock() - self._request_timeout_s)
        asked = self._metadata_in_flight
        self._metadata_in_flight = {key: at for key, at in asked.items() if key[0] != transport.number}
        self._history.note("network", "connection %d to node %d is gone", transport.number, transport.node.number)
        error = getattr(transport.connection, "error", None)
        is_known = not (self._is_hostile or transport.is_seen_late)  # since when the oldest request has waited
        is_given_up = "no answer within" in str(error) and is_known
        # An answer may arrive at the very instant at which the time is over, and be noticed after it.
        if is_given_up and _TICK_S < waited_s < self._request_timeout_s - _TICK_S:
            self.violated("TIMEOUT", f"connection {transport.number} was given up after {waited_s:.6f} s: {error}")

    def died(self, node: int) -> None:
        """A broker is dead, and so is its pause: metadata without it makes the client forget both."""
        self._pauses.pop(node, None)

    def may_omit(self) -> None:
        """Responses may leave a partition out from now on: the producer does not see every refusal."""
        self._resends.is_told_all = False

    def forget_pauses(self) -> None:
        """Another producer begins, which has seen no refusal."""
        self._pauses.clear()

    # Requests

    def written(self, transport: SimulatedTransport, frame: bytes) -> bool:
        """Look at a request; return whether it is a Produce."""
        _, api, version, correlation_id = _HEAD.unpack_from(frame)
        number, asked = transport.number, transport.asked
        self.requests[_NAMES[api]] += 1
        if self._pauses and not transport.is_seen_late and self._is_pause(transport, api):
            self.violated("KIP-219", f"{_NAMES[api]} was sent to node {transport.node.number} during its pause")
        now = self._clock()
        if not asked:
            self._oldest_since[number] = now
            if now - self._used_until(transport, now) > self._max_idle_s + self._held_s + _LATE_S:
                self.violated("IDLE", f"connection {number} is used after {now - self._used[number]:.3f} s")
        self._used[number] = now
        if api != _PRODUCE:
            self._note_question(transport, api, version, correlation_id)
            return False
        if self._is_answered:
            asked[correlation_id] = api
        if len(asked) > self._max_in_flight and list(asked.values()).count(_PRODUCE) > self._max_in_flight:
            self.violated("IN_FLIGHT", f"more than {self._max_in_flight} Produce requests on connection {number}")
        if self._looks_into_requests:
            self._check_batches(produce_in(frame, version), (number, correlation_id), transport)
        return True

    def left(self, transport: SimulatedTransport) -> None:
        self._used[transport.number] = self._clock()

    def _note_question(self, transport: SimulatedTransport, *question: int) -> None:
        api, version, correlation_id = question
        transport.asked[correlation_id] = api
        if api == _INIT and not self._is_transactional:
            self._resends.asked_for_id(self._clock())
        if api == _METADATA:
            self._note_metadata((transport.number, correlation_id))
        if self._is_recording:
            self._history.note("producer", "%s v%d to node %d", _NAMES[api], version, transport.node.number)

    def _used_until(self, transport: SimulatedTransport, now: float) -> float:
        """Return when a connection was used last; if its node had asked for a pause, a timeout after that."""
        until, connection, *_ = self._pauses.get(transport.node.number, _NO_PAUSE)
        return max(self._used.get(transport.number, now), until if connection == transport.number else 0.0)

    def _is_pause(self, transport: SimulatedTransport, api: int) -> bool:
        """Whether a node had asked for a pause; on a bootstrap connection the producer may not know the node."""
        until, connection, told_by, heard_at = self._pauses.get(transport.node.number, _NO_PAUSE)
        is_known = api == told_by == _PRODUCE or connection == transport.number
        if not is_known or api == _HANDSHAKE or until <= self._clock():
            return False
        # An authentication that began before may wait for a password or a token until the pause.
        return api not in _OF_SASL or getattr(transport.connection, "_began_at", 0.0) > heard_at

    def _note_metadata(self, key: tuple[int, int]) -> None:
        now = self._clock()
        asked = self._metadata_in_flight
        patience_s = min(self._request_timeout_s, _SILENCE_S) - _TICK_S
        fresh = [connection for (connection, _), at in asked.items() if now < at + patience_s]
        if len(fresh) > self._most_hedged or (len(fresh) > 1 and key[0] in fresh):
            self.violated("PACE", f"Metadata request {len(fresh) + 1}, while others and their hedges are in flight")
        asked[key] = now
        if len(self._refreshes) == AT_ONCE and now < self._refreshes[0] + self._refresh_pause_s:
            self.violated("PACE", f"{AT_ONCE + 1} Metadata requests in {now - self._refreshes[0]:.6f} s")
        self._refreshes.append(now)

    def _check_batches(self, request: DecodedProduce, key: tuple[int, int], transport: SimulatedTransport) -> None:
        size = sum(len(produced.records or b"") for produced in request.partitions)
        if self._is_answered and request.timeout_ms >= self._request_timeout_s * 1000:
            self.violated("TIMEOUT", f"a broker may wait for {request.timeout_ms} ms, longer than a request may take")
        if len(request.partitions) > 1 and size > self._max_request_size:
            self.violated("SIZE", f"{len(request.partitions)} batches in {size} bytes: more than max.request.size")
        for produced in request.partitions:
            assert produced.records is not None
            header = read_header(produced.records)
            place = (produced.topic or produced.topic_id, produced.partition_index)
            batch = (*place, header.crc)
            self._resends.asked(key, place[1], batch)
            self._resends.sent(batch, transport.node.number, self._clock())
            self._history.note(
                "producer", "Produce #%d.%d to node %d: %s", *key, transport.node.number, _Batch(place, header)
            )
            if header.record_count > 1 and not header.codec and header.size > self._batch_size:
                self.violated("SIZE", f"{header.record_count} records in {header.size} bytes: more than batch.size")
            if self._looks_at_times and not header.codec:
                self._check_times(header, produced.records)
            if header.producer_id >= 0:
                self._check_epoch((*place, header.producer_id), header.producer_epoch)
                self._check_identity((*place, header.producer_id, header.producer_epoch), header, produced.records)

    def _check_times(self, header: BatchHeader, records: memoryview) -> None:
        """TIMES: brokers put a wrong one right, and look for records by their times with what they have put there."""
        latest = max(record.timestamp for record in decode_records(records))
        if header.max_timestamp != latest:
            self.violated("TIMES", f"a batch says that its latest record is of {header.max_timestamp}, not {latest}")

    def _check_epoch(self, who: tuple[object, int, int], epoch: int) -> None:
        """EPOCH: an epoch is left when nothing of it is unresolved, so nothing is sent under it any more."""
        if epoch < self._epochs.get(who, epoch):
            self.violated("EPOCH", f"a batch of {who} goes out under epoch {epoch}, after epoch {self._epochs[who]}")
        self._epochs[who] = epoch

    def _check_identity(self, who: tuple[object, int, int, int], header: BatchHeader, records: memoryview) -> None:
        known = self._sequences.setdefault((*who, header.base_sequence), (header.crc, bytes(records)))
        if known[0] == header.crc:
            return
        # The parts of a split batch keep its sequences, so the first part begins as the whole did.
        for before, now in zip(decode_records(known[1]), decode_records(records), strict=False):
            if (before.key, before.value, before.timestamp) != (now.key, now.value, now.timestamp):
                self.violated(
                    "SEQUENCE", f"sequence {now.sequence} of {who} was given to {before.value!r} and {now.value!r}"
                )
                return
        self._sequences[*who, header.base_sequence] = (header.crc, bytes(records))

    def forget_identities(self) -> None:
        """Take every sequence as unused: two thousand million of them are said to have gone by."""
        self._sequences.clear()

    def fate(self, transport: SimulatedTransport, frame: bytes) -> Fate:
        """Return the state of a request that was written to this connection."""
        correlation_id = _HEAD.unpack_from(frame)[3]
        if correlation_id in transport.asked:
            return Fate.OPEN
        key = (transport.number, correlation_id)
        is_served = not self._authenticates or key in self._appended  # a session that is refused hides what follows
        return Fate.MAY_REPEAT if is_served and key not in self._refused else Fate.REFUSED

    # Answers

    def observe(self, exchange: Exchange, answer: object, now: float) -> None:
        """Look at an answer as a broker gives it, before the network or a fault may lose it."""
        del now
        if exchange.throttle_ms and exchange.api in _HEARD:
            self._throttles[exchange.connection_id, exchange.header.correlation_id] = exchange.throttle_ms
        if exchange.api is ApiKey.PRODUCE:
            self._observe_results(exchange, _results(answer))
            return
        codes, name = _codes_in(answer), _NAMES[exchange.api]
        for code in codes:
            self.error_codes[name, code] += 1
        if self._is_recording:
            told = [code for code in codes if code]
            self._history.note("broker", "node %d answers %s: errors %s", exchange.broker.node_id, name, told)

    def _observe_results(self, exchange: Exchange, results: Sequence[ProduceResult]) -> None:
        key = (exchange.connection_id, exchange.header.correlation_id)
        is_appended = True
        for each in results:
            is_appended = is_appended and each.base_offset >= 0
            if each.error_code in COUNTED:
                self._resends.refused(key, each.index, each.error_code)
            self.error_codes["PRODUCE", each.error_code] += 1
            if self._is_recording:
                told = (each.index, each.error_code, each.base_offset)
                text = "node %d, Produce #%d.%d: partition %d, error %d, offset %d"
                self._history.note("broker", text, exchange.broker.node_id, *key, *told)
        self._appended[key] = is_appended

    def was_served(self, key: tuple[int, int]) -> bool:
        """Whether every batch of a request, by connection and correlation id, is in a log."""
        return self._appended.get(key, False)

    def answered(self, transport: SimulatedTransport, frame: bytes, *, is_heard: bool = True) -> Key | None:
        """Look at an answer as it arrives; unheard is one that comes as other bytes, as may all after it.

        Return connection and correlation id of its request; None for half an answer.
        """
        if len(frame) < _CORRELATION.size:
            return None
        size, correlation_id = _CORRELATION.unpack_from(frame)
        if size != len(frame) - 4:
            return None
        number, now = transport.number, self._clock()
        self._used[number] = now
        key = (number, correlation_id)
        since = self._oldest_since.get(number)
        if since is not None:
            if now - since > self._request_timeout_s + _TICK_S and not transport.is_spoilt:
                self.violated("TIMEOUT", f"connection {number} was waited at for {now - since:.6f} s")
            self._oldest_since[number] = now
        api = transport.asked.pop(correlation_id, None)
        if api is not None and is_heard and key in self._throttles:
            until = now + self._throttles.pop(key) / 1000 - _TICK_S
            self._pauses[transport.node.number] = (until, number, api, now)
            self._oldest_since[number] = until  # the broker reads nothing before, so no answer is due
        if api == _METADATA:
            self._metadata_in_flight.pop(key, None)
        elif api == _PRODUCE:
            self._produce_answered(key, is_heard=is_heard and not transport.is_spoilt)
        return key

    def _produce_answered(self, key: tuple[int, int], *, is_heard: bool) -> None:
        self._resends.answered(key, is_heard=is_heard)
        if not self._appended.get(key, False):
            self._refused.add(key)


class _Batch:
    def __init__(self, place: tuple[object, int], header: BatchHeader) -> None:
        self._place = place
        self._header = header

    def __str__(self) -> str:
        header = self._header
        return (
            f"partition {self._place[1]}, id {header.producer_id}, epoch {header.producer_epoch}, "
            f"sequence {header.base_sequence}, {header.record_count} records, crc {header.crc:08x}"
        )


@lru_cache(maxsize=1)
def produce_in(frame: bytes, version: int) -> DecodedProduce:
    header, reader = read_request_header(memoryview(frame)[4:])
    api = ApiKey.PRODUCE
    return decode_produce(Reader(read_payload(api, header, reader), flexible=api.is_flexible(version)), version)


def _results(answer: object) -> Sequence[ProduceResult]:
    assert isinstance(answer, list)
    return answer


def _codes_in(answer: object) -> list[int]:
    assert isinstance(answer, Mapping)
    topics = answer.get("topics", ())
    codes = [answer.get("error_code", 0)]
    for topic in topics:
        if "error_code" in topic:  # TxnOffsetCommit says it of partitions alone
            codes.append(topic["error_code"])
        codes += [partition["error_code"] for partition in topic["partitions"]]
    return codes


ATTEMPTS_AT_ONCE: Final = 3
"""Attempts at one node that may follow each other within a pause: leaders move away and back."""

FEW_RETRIES: Final = 3  # attempts of what a broker refuses by one of `FEW`; the next refusal ends it
SOON_MS: Final = 1  # the first pause where a broker may say CONCURRENT_TRANSACTIONS

FEW: Final = frozenset(int(code) for code in ErrorCode if code.few_retries)
"""Codes that a broker gives again and again: the bytes are bad, or the version is."""

BEHIND: Final = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
"""Code of a batch behind a refused one: it may follow that one without a pause."""

COUNTED: Final = FEW | {int(ErrorCode.CONCURRENT_TRANSACTIONS), BEHIND}
"""Codes that change how often a batch may be sent."""

MOVING: Final = frozenset(
    (
        "stale metadata",
        "no leader",
        "crash",
        "crash with loss",
        "topic changes",
        "cluster moves",
        "outage",
        "lies",
        "hostile bytes",
    )
)
"""Faults after which leaders move, and batches follow them without a pause."""


class ResendChecker:
    """Looks at how often, and how soon after each other, the same is asked: what `retries` and backoff are for.

    A batch is known by its checksum, which its identity and its records decide. Its first attempts may follow each
    other at once, because its leader has moved in between; a producer that knows no pause sends it again and again,
    or asks so for a producer id. Where a broker may say CONCURRENT_TRANSACTIONS, the pause is short. Where no leader
    moves, each pause is twice as long as the one before. What repetition is unlikely to change is repeated few times.
    """

    def __init__(self, history: History, plan: Plan) -> None:
        options = plan.options
        self.is_told_all = True
        self._history = history
        self._most = plan.number("retries") + 1 if "retries" in options else None
        pause_ms = min(plan.number("retry_backoff_ms"), plan.number("retry_backoff_max_ms"))
        may_be_busy = plan.family.is_transactional or "codes" in plan.enabled
        self._batch_pause_s = SPREAD * (min(SOON_MS, pause_ms) if may_be_busy else pause_ms) / 1000
        self._pause_s = SPREAD * pause_ms / 1000
        self._attempts: dict[tuple[object, ...], int] = {}
        self._asked_for_id: deque[float] = deque(maxlen=ATTEMPTS_AT_ONCE)
        self._lately: dict[tuple[object, ...], deque[float]] = {}
        self._last: dict[tuple[object, ...], float] = {}  # when a batch was sent the last time
        self._grows = not may_be_busy and not MOVING & set(plan.enabled)
        self._first_ms, self._most_ms = plan.number("retry_backoff_ms"), plan.number("retry_backoff_max_ms")
        self._in_request: dict[Key, dict[int, tuple[object, ...]]] = {}  # unanswered batches, by partition
        self._bad: dict[Key, list[tuple[object, ...]]] = {}  # batches in answers that have not arrived
        self._put_off: dict[Key, list[tuple[object, ...]]] = {}  # such batches, to be sent again in a moment
        self._held_up: dict[Key, list[tuple[object, ...]]] = {}  # such batches, refused because of one before them
        self._may_follow: set[tuple[object, ...]] = set()  # those of them that have not been sent again
        self._allowed: Counter[tuple[object, ...]] = Counter()  # attempts beyond `retries`: brokers had no time
        self._ended: set[tuple[object, ...]] = set()

    def sent(self, batch: tuple[object, ...], node: int, now: float) -> None:
        count = self._attempts[batch] = self._attempts.get(batch, 0) + 1
        if batch in self._ended:
            self._history.violated("RETRIES", f"attempt {count} of {batch}, which was refused for good")
        may_follow = batch in self._may_follow
        self._may_follow.discard(batch)
        if count > 1 and self._grows and not may_follow:
            self._check_growth(batch, count - 1 - self._allowed[batch], now)
        self._last[batch] = now
        if self._most is not None and count > self._most + self._allowed[batch]:
            self._history.violated("RETRIES", f"attempt {count} of {batch}, of {self._most} allowed")
        if may_follow:
            return
        lately = self._lately.setdefault((*batch, node), deque(maxlen=ATTEMPTS_AT_ONCE))
        self._check_pace(lately, self._batch_pause_s, now, what=f"attempts of {batch} at node {node}")

    def asked(self, key: Key, partition: int, batch: tuple[object, ...]) -> None:
        self._in_request.setdefault(key, {})[partition] = batch

    def refused(self, key: Key, partition: int, code: int) -> None:
        """Look at what a broker answers for one batch, one of `COUNTED`."""
        batch = self._in_request.get(key, {}).get(partition)
        if batch is not None and code == ErrorCode.CONCURRENT_TRANSACTIONS:
            self._put_off.setdefault(key, []).append(batch)
        if batch is not None and code == BEHIND:
            self._held_up.setdefault(key, []).append(batch)
        if batch is not None and code in FEW and self._attempts[batch] > FEW_RETRIES:
            self._bad.setdefault(key, []).append(batch)

    def answered(self, key: Key, *, is_heard: bool = True) -> None:
        """Note that an answer has arrived: what it says is known from now on, if its bytes are what was answered."""
        self._in_request.pop(key, None)
        bad = self._bad.pop(key, ())
        if is_heard and self.is_told_all:
            self._ended.update(bad)
        held_up = self._held_up.pop(key, ())
        self._may_follow.update(held_up)
        self._allowed.update((*held_up, *self._put_off.pop(key, ())))

    def _check_growth(self, batch: tuple[object, ...], failures: int, now: float) -> None:
        pause_s = SPREAD * min(self._first_ms << min(failures - 1, 20), self._most_ms) / 1000
        if now < self._last[batch] + pause_s:
            passed_s = now - self._last[batch]
            self._history.violated("PACE", f"{batch} is sent again after {passed_s:.6f} s, failure {failures}")

    def asked_for_id(self, now: float) -> None:
        self._check_pace(self._asked_for_id, self._pause_s, now, what="questions for a producer id")

    def _check_pace(self, lately: deque[float], pause_s: float, now: float, *, what: str) -> None:
        if len(lately) == ATTEMPTS_AT_ONCE and now < lately[0] + pause_s:
            self._history.violated("PACE", f"{ATTEMPTS_AT_ONCE + 1} {what} in {now - lately[0]:.6f} s")
        lately.append(now)
