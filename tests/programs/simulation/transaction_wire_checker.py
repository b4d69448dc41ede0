"""Checks the frames of transactional producers: REQUEST_ORDER, the order of a transaction's requests on the wire.

Under transactions V1 a partition is produced to only after its AddPartitionsToTxn was answered, and an end waits
until every Produce of the transaction is answered or its connection is closed. Under V2 a commit waits for that, an
abort need not; and nothing is sent under an epoch whose end was asked for. No partition is added twice, a transaction
of V2 has an epoch that none of V1 had, and another epoch is asked for where something went wrong, and only there.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.records import TopicPartition
from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.apis.produce import ProduceResult
from aioproducer.testing.fake_broker.exchange import Exchange, read_payload, read_request_header
from aioproducer.testing.fake_broker.log.record_batch import read_header
from aioproducer.testing.fake_broker.wire.messages import decode_request
from tests.programs.simulation.history import History
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.simulated_transport import SimulatedTransport
from tests.programs.simulation.transaction_checker import member_of
from tests.programs.simulation.wire_checker import WireChecker, produce_in

LAST_PRODUCE_OF_V1: Final = 11
LAST_END_OF_V1: Final = 4
FIRST_WITH_MEMBER: Final = 3
FIRST_COMMIT_OF_V2: Final = 5

_HEAD: Final = struct.Struct(">ihhi")
_ADD: Final = int(ApiKey.ADD_PARTITIONS_TO_TXN)
_END: Final = int(ApiKey.END_TXN)
_INIT: Final = int(ApiKey.INIT_PRODUCER_ID)
_ADD_OFFSETS: Final = int(ApiKey.ADD_OFFSETS_TO_TXN)
_COMMIT_OFFSETS: Final = int(ApiKey.TXN_OFFSET_COMMIT)


class TransactionWireChecker(WireChecker):
    """Checks frames of producers with a transactional id; several may live after each other."""

    def __init__(self, history: History, plan: Plan, clock: Callable[[], float]) -> None:
        super().__init__(history, plan, clock)
        self._asked: dict[Key, Claim] = {}  # AddPartitionsToTxn, AddOffsetsToTxn under way: for which identity
        self._granted: dict[Key, list[TopicPartition]] = {}  # answered, and not received yet
        self._added: dict[Claim, set[TopicPartition]] = defaultdict(set)
        # What V2 would have added goes out as it is, and leaders refuse it: so much may be done as in V2.
        self._keeps_to_v1 = "downgrade" not in plan.enabled
        self._produces: dict[Key, Claim] = {}  # neither answered nor lost
        self._was_refused: dict[Key, bool] = {}  # whether brokers have refused an InitProducerId
        self._lost_asked: set[Key] = set()  # those whose connection is gone: they may arrive late
        self.fencing = FencingByChance(clock, plan.number("request_timeout_ms") / 1000)
        self._ended: set[Claim] = set()  # an end was asked for under V2: its answer brings another epoch
        self._used_by_v1: set[Claim] = set()
        self._had_trouble = False  # since another epoch was had
        self._was_upgraded = False  # or downgraded: it needs another epoch once, when the producer learns of it
        self._asking = RequestPaceChecker(history, plan)
        self._pipelines = PipelineChecker(history)

    # Requests

    def written(self, transport: SimulatedTransport, frame: bytes) -> bool:
        is_produce = super().written(transport, frame)
        _, api, version, correlation_id = _HEAD.unpack_from(frame)
        key = (transport.number, correlation_id)
        if is_produce:
            self._check_produce(frame, version, key)
        elif api in ASKED:
            self._asking.asked(key, api, frame, now=self._clock())
            self._check_question(frame, api, version, key=key)
        return is_produce

    def _check_question(self, frame: bytes, api: int, version: int, *, key: Key) -> None:
        if api == _ADD:
            request = cast("Any", _request_in(frame, ApiKey.ADD_PARTITIONS_TO_TXN, version))
            claim = _adder(request)
            self._check_places(claim, request.v3_and_below_topics)
            self._asked[key] = claim
        elif api == _INIT:
            request = cast("Any", _request_in(frame, ApiKey.INIT_PRODUCER_ID, version))
            if request.producer_id < 0:
                self.fencing.first_asked(key)
            else:
                self._check_renewal(key, request.producer_epoch)
        elif api == _ADD_OFFSETS:
            request = cast("Any", _request_in(frame, ApiKey.ADD_OFFSETS_TO_TXN, version))
            self._asked[key] = claim = Claim(request.producer_id, request.producer_epoch)
            self._used_by_v1.add(claim)
        elif api == _COMMIT_OFFSETS and version >= FIRST_WITH_MEMBER:
            self._check_offsets(cast("Any", _request_in(frame, ApiKey.TXN_OFFSET_COMMIT, version)), version)
        elif api == _END:
            request = cast("Any", _request_in(frame, ApiKey.END_TXN, version))
            claim = Claim(request.producer_id, request.producer_epoch)
            self._check_end(claim, is_commit=request.committed, is_v1=version <= LAST_END_OF_V1)

    def _check_renewal(self, key: Key, epoch: int) -> None:
        self.fencing.renewal_asked(key)
        if not self._had_trouble and not self._was_upgraded:
            self.violated("EPOCH", f"nothing went wrong, and epoch {epoch} is given up")
        self._was_upgraded = self._was_upgraded and self._had_trouble

    def _check_offsets(self, request: Any, version: int) -> None:
        who, claim = member_of(request.group_id), Claim(request.producer_id, request.producer_epoch)
        if (request.member_id, request.group_instance_id) != (who.member_id, who.group_instance_id):
            self.violated("OFFSETS", f"{request.member_id!r} commits offsets for {who}")
        if version >= FIRST_COMMIT_OF_V2 and claim in self._used_by_v1:
            self.violated("ONE_TRANSACTION", f"offsets are committed as in V2 under {claim}, of a transaction of V1")

    def _check_places(self, claim: Claim, topics: Iterable[Any]) -> None:
        places = {TopicPartition(topic.name, number) for topic in topics for number in topic.partitions}
        if twice := places & self._added[claim]:
            self.violated("REQUEST_ORDER", f"{sorted(twice)} are added again under {claim}")

    def _check_produce(self, frame: bytes, version: int, key: Key) -> None:
        for produced in produce_in(frame, version).partitions:
            assert produced.records is not None
            batch = read_header(produced.records)
            claim = Claim(batch.producer_id, batch.producer_epoch)
            self._produces[key] = claim
            is_v1 = version <= LAST_PRODUCE_OF_V1
            place = TopicPartition(produced.topic or "", produced.partition_index)
            self._pipelines.sent(key, (place.partition, *claim), is_v1=is_v1 and self._keeps_to_v1)
            if is_v1:
                self._used_by_v1.add(claim)
            elif claim in self._used_by_v1:
                self.violated("ONE_TRANSACTION", f"a transaction of V2 is under {claim}, as one of V1 was")
            if is_v1 and self._keeps_to_v1 and place not in self._added[claim]:
                self.violated("REQUEST_ORDER", f"Produce to {place} under {claim}, which was not told that it is added")
            if claim in self._ended:
                self.violated("REQUEST_ORDER", f"Produce to partition {place.partition} under {claim}, which was ended")

    def _check_end(self, claim: Claim, *, is_commit: bool, is_v1: bool) -> None:
        waiting = sum(other == claim for other in self._produces.values())
        if waiting and (is_commit or is_v1):
            what = "commit" if is_commit else "abort"
            self.violated(
                "REQUEST_ORDER", f"EndTxn ({what}) under {claim} while {waiting} Produce requests are unanswered"
            )
        self._added.pop(claim, None)
        self._had_trouble = self._had_trouble or not is_commit
        if not is_v1:
            self._ended.add(claim)

    # Answers

    def observe(self, exchange: Exchange, answer: object, now: float) -> None:
        super().observe(exchange, answer, now)
        key = exchange.connection_id, exchange.header.correlation_id
        if exchange.api is ApiKey.PRODUCE:
            codes = self._pipelines.observed(key, cast("Any", answer))
        elif int(exchange.api) in ASKED:
            codes = _codes_of(answer)
            self._asking.observed(key, codes)
        else:
            codes = []
        self._had_trouble = self._had_trouble or any(codes)
        if exchange.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            self._note_granted(exchange, key, cast("Any", answer)["results_by_topic_v3_and_below"])
        elif exchange.api is ApiKey.ADD_OFFSETS_TO_TXN and not any(codes):
            self._note_begun(key, _who_asks(exchange))
        elif exchange.api is ApiKey.END_TXN and not any(codes):
            self.fencing.ended(_who_asks(exchange))
        elif exchange.api is ApiKey.INIT_PRODUCER_ID:
            self._was_refused[key] = any(codes)
            if ErrorCode.CONCURRENT_TRANSACTIONS in codes:
                self.fencing.has_aborted(key, _who_asks(exchange))

    def _note_granted(self, exchange: Exchange, key: Key, topics: Iterable[Any]) -> None:
        rows = [(topic["name"], row) for topic in topics for row in topic["results_by_partition"]]
        granted = self._granted[key] = []
        for name, row in rows:
            self.error_codes[exchange.api.name, row["partition_error_code"]] += 1
            if not row["partition_error_code"]:
                granted.append(TopicPartition(name, row["partition_index"]))
        if granted:
            self._note_begun(key, _adder(exchange.request()))

    def _note_begun(self, key: Key, claim: Claim) -> None:
        if key in self._lost_asked and not self._added.get(claim):
            self.fencing.begun_late(claim)

    def answered(self, transport: SimulatedTransport, frame: bytes, *, is_heard: bool = True) -> Key | None:
        key = super().answered(transport, frame, is_heard=is_heard)
        if key is None:
            return None
        self._asking.answered(key, self._clock())
        self._pipelines.answered(key)
        self._produces.pop(key, None)
        if self.fencing.answered(key):
            self._had_trouble = self._was_refused.pop(key, True)
        claim = self._asked.pop(key, None)
        if claim is not None:
            self._added[claim].update(self._granted.pop(key, ()))
        return key

    def connecting(self, host: str) -> None:
        super().connecting(host)
        self._asking.disturbed()

    def fired(self, code: str) -> None:
        super().fired(code)
        self._was_upgraded = self._was_upgraded or code in {"upgrade", "downgrade"}

    def lost(self, transport: SimulatedTransport) -> None:
        super().lost(transport)
        self._had_trouble = True
        self._asking.disturbed()
        self._pipelines.lost(transport.number)
        self._produces = {key: claim for key, claim in self._produces.items() if key[0] != transport.number}
        self._lost_asked |= {key for key in self._asked if key[0] == transport.number}
        self._asked = {key: claim for key, claim in self._asked.items() if key[0] != transport.number}
        self.fencing.connection_lost(transport.number)


def _request_in(frame: bytes, api: ApiKey, version: int) -> object:
    header, reader = read_request_header(memoryview(frame)[4:])
    return decode_request(api, version, read_payload(api, header, reader))


def _adder(request: object) -> Claim:
    asked = cast("Any", request)
    return Claim(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch)


def _who_asks(exchange: Exchange) -> Claim:
    asked = cast("Any", exchange.request())
    return Claim(asked.producer_id, asked.producer_epoch)


def _codes_of(answer: object) -> list[int]:
    if isinstance(answer, Mapping):
        return [each for name, value in answer.items() for each in _codes_at(name, value)]
    return [code for each in answer for code in _codes_of(each)] if isinstance(answer, list) else []


def _codes_at(name: str, value: object) -> list[int]:
    if name.endswith("error_code"):
        return [cast("int", value)]
    return _codes_of(value)


ASKED: Final = frozenset(
    int(api)
    for api in (
        ApiKey.FIND_COORDINATOR,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    )
)

SPREAD: Final = (0.8, 1.2)

SLACK_S: Final = 0.05

SOON_MS: Final = (1, 20)  # the first and the longest pause where the last transaction is not over yet
SOON_AT_MOST: Final = 50  # attempts after such pauses; then those of the options follow

_FIRST: Final = frozenset((int(ApiKey.FIND_COORDINATOR), int(ApiKey.DESCRIBE_TRANSACTIONS)))
"""Requests that precede another request, whose attempts are counted."""

_CORRELATION_ID: Final = slice(8, 12)

Key = tuple[int, int]


class RequestPaceChecker:
    """Checks the pace of a transactional producer's requests to its coordinators, and the identity in them.

    What is refused for the moment is asked again, with the same content, after the pauses that the options name: each
    twice as long as the one before, up to `retry_backoff_max_ms`, and short where the last transaction is not over
    yet. A request that is done makes the next pause the first again.
    """

    def __init__(self, history: History, plan: Plan) -> None:
        self._violated = history.violated
        self._first_ms = plan.number("retry_backoff_ms")
        self._most_ms = plan.number("retry_backoff_max_ms")
        self._may_be_throttled = "throttle" in plan.enabled
        self._last: bytes | None = None  # what was asked, but for what is asked first
        self._key: Key | None = None
        self._asked_at = 0.0
        self._attempts = 0
        self._finds = 0
        self._is_soon = False
        self._heard_at: float | None = None  # when the last answer came; None: none has
        self._is_clean = False  # whether nothing but refusals has lengthened the pauses since a request was done
        self._was_done = True
        self._is_over = False  # done, and the response has arrived: the same again is another request

    def asked(self, key: Key, api: int, frame: bytes, *, now: float) -> None:
        content = frame[4 : _CORRELATION_ID.start] + frame[_CORRELATION_ID.stop :]
        if api in _FIRST:
            self._finds += 1
            self._heard_at = None  # what it waits for now is the answer to this
            return
        if self._last == content and not self._is_over:
            self._check_pace(key, now, ApiKey(api).name)
            self._attempts += 1
        else:
            self._is_clean = self._was_done and not self._finds
            self._attempts, self._finds = 1, 0
        self._last = content
        self._key, self._asked_at, self._heard_at = key, now, None
        self._is_soon = self._was_done = self._is_over = False

    def observed(self, key: Key, codes: list[int]) -> None:
        """Look at an answer as a broker gives it."""
        if key == self._key:
            self._is_soon = ErrorCode.CONCURRENT_TRANSACTIONS in codes
            self._was_done = not any(codes)

    def answered(self, key: Key, now: float) -> None:
        if key == self._key:
            self._heard_at = now
            self._is_over = self._was_done

    def disturbed(self) -> None:
        """A connection is lost, or made: the number of attempts cannot be seen."""
        self._is_clean = False

    def _check_pace(self, key: Key, now: float, name: str) -> None:
        """PACE: not too soon for the coordinator, and not too late for the waiter."""
        pause_s = self._pause_s(self._attempts - 1) * SPREAD[0]
        if now < self._asked_at + pause_s:
            self._violated(
                "PACE", f"{name} is asked again after {now - self._asked_at:.6f} s, attempt {self._attempts}"
            )
        is_known = self._is_clean and not self._may_be_throttled and self._key is not None and key[0] == self._key[0]
        longest_s = self._pause_s(self._attempts - 1 + self._finds) * SPREAD[1] + SLACK_S
        if is_known and self._heard_at is not None and now > self._heard_at + longest_s:
            waited_s = now - self._heard_at
            self._violated("PACE", f"{name} is asked again only after {waited_s:.6f} s, attempt {self._attempts}")

    def _pause_s(self, doublings: int) -> float:
        first_ms, most_ms = self._first_ms, self._most_ms
        if self._is_soon and doublings < SOON_AT_MOST:
            first_ms, most_ms = min(first_ms, SOON_MS[0]), min(most_ms, SOON_MS[1])
        return min(first_ms << min(doublings, 20), most_ms) / 1000


_GOOD: Final = frozenset((int(ErrorCode.NONE), int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)))
"""A copy is as good as what it is a copy of."""


Who = tuple[int, int, int]


class PipelineChecker:
    """Checks how many batches of a partition a transactional producer has in flight: one until it may have more.

    A broker without state takes any first sequence. So a partition has one batch on its way until one under the
    present identity was acknowledged on this connection, and again after a refusal. Brokers of V2 refuse a first
    sequence other than 0: there a partition that had no trouble need not wait.
    """

    def __init__(self, history: History) -> None:
        self._violated = history.violated
        self._on_wire: dict[Key, list[Who]] = defaultdict(list)
        self._codes: dict[Key, dict[int, int]] = {}  # of answers that have not arrived, by partition
        self._confirmed: dict[Who, int] = {}  # the connection on which a batch was acknowledged
        self._had_trouble: set[Who] = set()

    def sent(self, key: Key, who: Who, *, is_v1: bool) -> None:
        others = sum(each == who for batches in self._on_wire.values() for each in batches)
        is_free = self._confirmed.get(who) == key[0] or not (is_v1 or who in self._had_trouble)
        if others and not is_free:
            self._violated(
                "IN_FLIGHT", f"{others + 1} batches of (partition, id, epoch) {who} before one is acknowledged"
            )
        self._on_wire[key].append(who)

    def observed(self, key: Key, results: Sequence[ProduceResult]) -> list[int]:
        """Note what a broker answers; returns the codes."""
        self._codes[key] = {each.index: each.error_code for each in results}
        return [*self._codes[key].values()]

    def answered(self, key: Key) -> None:
        codes = self._codes.pop(key, {})
        for who in self._on_wire.pop(key, ()):
            if codes.get(who[0], -1) in _GOOD:
                self._confirmed[who] = key[0]
            else:
                self._doubt(who)

    def lost(self, connection: int) -> None:
        for key in [key for key in self._on_wire if key[0] == connection]:
            for who in self._on_wire.pop(key):
                self._doubt(who)

    def _doubt(self, who: Who) -> None:
        self._confirmed.pop(who, None)
        self._had_trouble.add(who)


class Claim(NamedTuple):
    """Under which identity something is asked."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class _Lost:
    """A request for another epoch whose response is no longer waited for."""

    life: int
    at: float


class FencingByChance:
    """Knows what may fence a producer without a successor: requests that are served late.

    A first InitProducerId fences the current owner of the transactional id. One for another epoch aborts the
    transaction that it finds, under an epoch that is not reported: a transaction that the producer began after it had
    waited for such a copy as long as it promises to, or one that the successor began, or one that a late
    AddPartitionsToTxn opened again.

    `waited_for_s`: how long a producer begins no transaction after a request for another epoch was lost.
    """

    def __init__(self, clock: Callable[[], float], waited_for_s: float) -> None:
        self._clock = clock
        self._waited_for_s = waited_for_s
        self._life = 0  # which producer it is, by its first InitProducerId
        self._first: set[Key] = set()  # first InitProducerId on their way
        self._renewals: dict[Key, int] = {}  # those for another epoch on their way: of which life
        self._lost: dict[Key, _Lost] = {}
        self._begun_late: set[Claim] = set()
        self.times = 0

    def first_asked(self, key: Key) -> None:
        self._first.add(key)
        self._life += 1

    def renewal_asked(self, key: Key) -> None:
        self._renewals[key] = self._life

    def answered(self, key: Key) -> bool:
        """Note a response; return whether it was to a request for another epoch."""
        self._first.discard(key)
        return self._renewals.pop(key, None) is not None

    def connection_lost(self, number: int) -> None:
        """Note a lost connection: its requests may be served at any time."""
        first = {key for key in self._first if key[0] == number}
        self.times += len(first)
        self._first -= first
        for key in [key for key in self._renewals if key[0] == number]:
            self._lost[key] = _Lost(self._renewals.pop(key), self._clock())

    def begun_late(self, claim: Claim) -> None:
        """A request without a waiter has opened a transaction, after the end of its own."""
        self._begun_late.add(claim)

    def ended(self, claim: Claim) -> None:
        """The transaction of this identity is over."""
        self._begun_late.discard(claim)

    def has_aborted(self, key: Key, claim: Claim) -> None:
        lost = self._lost.get(key)
        is_late = lost is not None and (lost.life < self._life or self._clock() >= lost.at + self._waited_for_s)
        self.times += is_late or claim in self._begun_late
