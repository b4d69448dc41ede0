"""Looks at the frames of transactional producers: I13, in what order a transaction is on the wire.

Under transactions V1 a partition is produced to only after its AddPartitionsToTxn was answered, and an end waits
until every Produce of the transaction is answered or its connection is closed. Under V2 a commit waits for that, an
abort need not; and nothing is sent under an epoch whose end was asked for.
"""

import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.records import TopicPartition
from aioproducer.testing import ApiKey
from aioproducer.testing.model.exchange import Exchange, read_payload, read_request_header
from aioproducer.testing.model.messages import decode_request
from aioproducer.testing.model.produce_wire import decode_produce
from aioproducer.testing.model.record_batch import read_header
from aioproducer.testing.model.wire import Reader
from tests.simulation.history import History
from tests.simulation.plan import Plan
from tests.simulation.simulated_transport import SimulatedTransport
from tests.simulation.wire_watch import WireWatch

LAST_PRODUCE_OF_V1: Final = 11
LAST_END_OF_V1: Final = 4

_HEAD: Final = struct.Struct(">ihhi")
_CORRELATION: Final = struct.Struct(">ii")
_ADD: Final = int(ApiKey.ADD_PARTITIONS_TO_TXN)
_END: Final = int(ApiKey.END_TXN)
_INIT: Final = int(ApiKey.INIT_PRODUCER_ID)

_Key = tuple[int, int]
"""Of a request: its connection, its correlation id."""


class Claim(NamedTuple):
    """Under which identity something is asked."""

    producer_id: int
    epoch: int


class TransactionWatch(WireWatch):
    """As `WireWatch`, for producers with a transactional id; several of them may live after each other."""

    def __init__(self, history: History, plan: Plan, clock: Callable[[], float]) -> None:
        super().__init__(history, plan, clock)
        self._asked: dict[_Key, Claim] = {}  # AddPartitionsToTxn on its way: for whom
        self._granted: dict[_Key, list[TopicPartition]] = {}  # answered to it, and not heard yet
        self._added: dict[Claim, set[TopicPartition]] = defaultdict(set)
        self._produces: dict[_Key, Claim] = {}  # neither answered nor lost
        self._inits: set[_Key] = set()  # first InitProducerId on their way
        self._lost_asked: set[_Key] = set()  # AddPartitionsToTxn whose connection is gone: they may arrive late
        self._begun_late: set[Claim] = set()  # by one of those, after the end of the transaction that it was for
        self.fenced_by_chance = 0
        """First InitProducerId that were lost: one that arrives late fences whoever has the id by then. And those for
        another epoch that find a transaction begun late: it is aborted under an epoch that nobody is told."""
        self._ended: set[Claim] = set()  # an end was asked for under V2: its answer brings another epoch

    # Requests

    def written(self, transport: SimulatedTransport, frame: bytes) -> bool:
        """Look at a request; tells whether it is a Produce."""
        is_produce = super().written(transport, frame)
        _, api, version, correlation_id = _HEAD.unpack_from(frame)
        key = (transport.number, correlation_id)
        if is_produce:
            self._look_at_produce(frame, version, key)
        elif api == _ADD:
            request = cast("Any", _request_in(frame, ApiKey.ADD_PARTITIONS_TO_TXN, version))
            self._asked[key] = _adder(request)
        elif api == _INIT:
            request = cast("Any", _request_in(frame, ApiKey.INIT_PRODUCER_ID, version))
            if request.producer_id < 0:
                self._inits.add(key)
        elif api == _END:
            request = cast("Any", _request_in(frame, ApiKey.END_TXN, version))
            claim = Claim(request.producer_id, request.producer_epoch)
            self._look_at_end(claim, is_commit=request.committed, is_v1=version <= LAST_END_OF_V1)
        return is_produce

    def _look_at_produce(self, frame: bytes, version: int, key: _Key) -> None:
        header, reader = read_request_header(memoryview(frame)[4:])
        payload = read_payload(ApiKey.PRODUCE, header, reader)
        request = decode_produce(Reader(payload, flexible=ApiKey.PRODUCE.is_flexible(version)), version)
        for produced in request.partitions:
            assert produced.records is not None
            batch = read_header(produced.records)
            claim = Claim(batch.producer_id, batch.producer_epoch)
            self._produces[key] = claim
            place = TopicPartition(produced.topic or "", produced.partition_index)
            if version <= LAST_PRODUCE_OF_V1 and place not in self._added[claim]:
                self.violated("I13", f"Produce to {place} under {claim}, which was not told that it is added")
            if claim in self._ended:
                self.violated("I13", f"Produce to partition {place.partition} under {claim}, which was ended")

    def _look_at_end(self, claim: Claim, *, is_commit: bool, is_v1: bool) -> None:
        waiting = sum(other == claim for other in self._produces.values())
        if waiting and (is_commit or is_v1):
            what = "commit" if is_commit else "abort"
            self.violated("I13", f"EndTxn ({what}) under {claim} while {waiting} Produce requests are unanswered")
        self._added.pop(claim, None)
        self._begun_late.discard(claim)
        if not is_v1:
            self._ended.add(claim)

    # Answers

    def observe(self, exchange: Exchange, answer: object, now: float) -> None:
        """Look at an answer as a broker gives it."""
        super().observe(exchange, answer, now)
        key = exchange.connection_id, exchange.header.correlation_id
        if exchange.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            topics = cast("Any", answer)["results_by_topic_v3_and_below"]
            rows = [(topic["name"], row) for topic in topics for row in topic["results_by_partition"]]
            granted = self._granted[key] = []
            for name, row in rows:
                self.error_codes[exchange.api.name, row["partition_error_code"]] += 1
                if not row["partition_error_code"]:
                    granted.append(TopicPartition(name, row["partition_index"]))
            claim = _adder(exchange.request())
            if granted and key in self._lost_asked and not self._added.get(claim):
                self._begun_late.add(claim)
        elif exchange.api is ApiKey.INIT_PRODUCER_ID:
            request = cast("Any", exchange.request())
            has_found_one = Claim(request.producer_id, request.producer_epoch) in self._begun_late
            is_busy = cast("Any", answer)["error_code"] == ErrorCode.CONCURRENT_TRANSACTIONS
            self.fenced_by_chance += has_found_one and is_busy

    def answered(self, transport: SimulatedTransport, frame: bytes) -> None:
        """Look at an answer as it arrives."""
        super().answered(transport, frame)
        if len(frame) < _CORRELATION.size:
            return
        size, correlation_id = _CORRELATION.unpack_from(frame)
        if size != len(frame) - 4:
            return  # half of it
        key = (transport.number, correlation_id)
        self._produces.pop(key, None)
        self._inits.discard(key)
        claim = self._asked.pop(key, None)
        if claim is not None:
            self._added[claim].update(self._granted.pop(key, ()))

    def lost(self, transport: SimulatedTransport) -> None:
        """A connection is gone, and with it what was in flight on it."""
        super().lost(transport)
        self._produces = {key: claim for key, claim in self._produces.items() if key[0] != transport.number}
        self._lost_asked |= {key for key in self._asked if key[0] == transport.number}
        self._asked = {key: claim for key, claim in self._asked.items() if key[0] != transport.number}
        lost = {key for key in self._inits if key[0] == transport.number}
        self.fenced_by_chance += len(lost)
        self._inits -= lost


def _request_in(frame: bytes, api: ApiKey, version: int) -> object:
    header, reader = read_request_header(memoryview(frame)[4:])
    return decode_request(api, version, read_payload(api, header, reader))


def _adder(request: object) -> Claim:
    """Who asks with an AddPartitionsToTxn."""
    asked = cast("Any", request)
    return Claim(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch)
