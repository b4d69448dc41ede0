"""Watches the frames of transactional producers: REQUEST_ORDER, the order of a transaction's requests on the wire.

Under transactions V1 a partition is produced to only after its AddPartitionsToTxn was answered, and an end waits
until every Produce of the transaction is answered or its connection is closed. Under V2 a commit waits for that, an
abort need not; and nothing is sent under an epoch whose end was asked for. No partition is added twice, a transaction
of V2 has an epoch that none of V1 had, and another epoch is asked for where something went wrong, and only there.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.records import TopicPartition
from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.exchange import Exchange, read_payload, read_request_header
from aioproducer.testing.fake_broker.log.record_batch import read_header
from aioproducer.testing.fake_broker.wire.messages import decode_request
from tests.programs.simulation.asking_watch import ASKED, AskingWatch
from tests.programs.simulation.fencing_by_chance import Claim, FencingByChance, Key
from tests.programs.simulation.history import History
from tests.programs.simulation.pipeline_watch import PipelineWatch
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.simulated_transport import SimulatedTransport
from tests.programs.simulation.transaction_stories import member_of
from tests.programs.simulation.wire_watch import WireWatch, produce_in

LAST_PRODUCE_OF_V1: Final = 11
LAST_END_OF_V1: Final = 4
FIRST_WITH_MEMBER: Final = 3
FIRST_COMMIT_OF_V2: Final = 5

_HEAD: Final = struct.Struct(">ihhi")
_CORRELATION: Final = struct.Struct(">ii")
_ADD: Final = int(ApiKey.ADD_PARTITIONS_TO_TXN)
_END: Final = int(ApiKey.END_TXN)
_INIT: Final = int(ApiKey.INIT_PRODUCER_ID)
_ADD_OFFSETS: Final = int(ApiKey.ADD_OFFSETS_TO_TXN)
_COMMIT_OFFSETS: Final = int(ApiKey.TXN_OFFSET_COMMIT)


class TransactionWatch(WireWatch):
    """Watches frames of producers with a transactional id; several may live after each other."""

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
        self._asking = AskingWatch(history, plan)
        self._pipelines = PipelineWatch(history)

    # Requests

    def written(self, transport: SimulatedTransport, frame: bytes) -> bool:
        """Look at a request; return whether it is a Produce."""
        is_produce = super().written(transport, frame)
        _, api, version, correlation_id = _HEAD.unpack_from(frame)
        key = (transport.number, correlation_id)
        if is_produce:
            self._look_at_produce(frame, version, key)
        elif api in ASKED:
            self._asking.asked(key, api, frame, now=self._clock())
            self._look_at_question(frame, api, version, key=key)
        return is_produce

    def _look_at_question(self, frame: bytes, api: int, version: int, *, key: Key) -> None:
        if api == _ADD:
            request = cast("Any", _request_in(frame, ApiKey.ADD_PARTITIONS_TO_TXN, version))
            claim = _adder(request)
            self._look_at_places(claim, request.v3_and_below_topics)
            self._asked[key] = claim
        elif api == _INIT:
            request = cast("Any", _request_in(frame, ApiKey.INIT_PRODUCER_ID, version))
            if request.producer_id < 0:
                self.fencing.first_asked(key)
            else:
                self._look_at_renewal(key, request.producer_epoch)
        elif api == _ADD_OFFSETS:
            request = cast("Any", _request_in(frame, ApiKey.ADD_OFFSETS_TO_TXN, version))
            self._asked[key] = claim = Claim(request.producer_id, request.producer_epoch)
            self._used_by_v1.add(claim)
        elif api == _COMMIT_OFFSETS and version >= FIRST_WITH_MEMBER:
            self._look_at_offsets(cast("Any", _request_in(frame, ApiKey.TXN_OFFSET_COMMIT, version)), version)
        elif api == _END:
            request = cast("Any", _request_in(frame, ApiKey.END_TXN, version))
            claim = Claim(request.producer_id, request.producer_epoch)
            self._look_at_end(claim, is_commit=request.committed, is_v1=version <= LAST_END_OF_V1)

    def _look_at_renewal(self, key: Key, epoch: int) -> None:
        self.fencing.renewal_asked(key)
        if not self._had_trouble and not self._was_upgraded:
            self.violated("EPOCH", f"nothing went wrong, and epoch {epoch} is given up")
        self._was_upgraded = self._was_upgraded and self._had_trouble

    def _look_at_offsets(self, request: Any, version: int) -> None:
        who, claim = member_of(request.group_id), Claim(request.producer_id, request.producer_epoch)
        if (request.member_id, request.group_instance_id) != (who.member_id, who.group_instance_id):
            self.violated("OFFSETS", f"{request.member_id!r} commits offsets for {who}")
        if version >= FIRST_COMMIT_OF_V2 and claim in self._used_by_v1:
            self.violated("ONE_TRANSACTION", f"offsets are committed as in V2 under {claim}, of a transaction of V1")

    def _look_at_places(self, claim: Claim, topics: Iterable[Any]) -> None:
        places = {TopicPartition(topic.name, number) for topic in topics for number in topic.partitions}
        if twice := places & self._added[claim]:
            self.violated("REQUEST_ORDER", f"{sorted(twice)} are added again under {claim}")

    def _look_at_produce(self, frame: bytes, version: int, key: Key) -> None:
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

    def _look_at_end(self, claim: Claim, *, is_commit: bool, is_v1: bool) -> None:
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
        """Look at an answer as a broker gives it."""
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

    def answered(self, transport: SimulatedTransport, frame: bytes, *, is_heard: bool = True) -> None:
        """Look at an answer as it arrives."""
        super().answered(transport, frame, is_heard=is_heard)
        if len(frame) < _CORRELATION.size:
            return
        size, correlation_id = _CORRELATION.unpack_from(frame)
        if size != len(frame) - 4:
            return  # half of it
        key = (transport.number, correlation_id)
        self._asking.answered(key, self._clock())
        self._pipelines.answered(key)
        self._produces.pop(key, None)
        if self.fencing.answered(key):
            self._had_trouble = self._was_refused.pop(key, True)
        claim = self._asked.pop(key, None)
        if claim is not None:
            self._added[claim].update(self._granted.pop(key, ()))

    def connecting(self, host: str) -> None:
        """The producer begins to connect."""
        super().connecting(host)
        self._asking.disturbed()

    def fired(self, code: str) -> None:
        super().fired(code)
        self._was_upgraded = self._was_upgraded or code in {"upgrade", "downgrade"}

    def lost(self, transport: SimulatedTransport) -> None:
        """A connection is gone, and with it what was in flight on it."""
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
