"""Injected faults: rules that tests add, and that brokers apply at fixed points of a request.

    frame arrives -> [stall] [delay] [drop connection] -> [error before append] append [error after append]
                  -> [drop connection] [delay] -> [half a frame | wrong correlation id | garbage | oversized] -> sent

A rule applies to the requests it names, after letting `skip` of them pass, `times` times (None: until removed).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, auto

from aioproducer.testing.fake_broker.numbers import check_seconds, check_whole_number
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey

_INT16, _INT32, _INT64 = 2**15, 2**31, 2**63
"""Limits of numbers on the wire: codes, times in ms and sizes, offsets."""


class FaultKind(IntEnum):
    """The kind of a fault."""

    STALL = auto()
    DELAY_REQUEST = auto()
    DROP_REQUEST = auto()
    ERROR = auto()
    ERROR_AFTER_APPEND = auto()
    RECORD_ERRORS = auto()
    OMIT_PARTITION = auto()
    THROTTLE = auto()
    DROP_RESPONSE = auto()
    DELAY_RESPONSE = auto()
    HALF_FRAME = auto()
    WRONG_CORRELATION_ID = auto()
    GARBAGE = auto()
    OVERSIZED_FRAME = auto()
    STALL_TLS = auto()
    CLOSE_TLS = auto()
    GARBAGE_TLS = auto()
    DELAY_TLS = auto()


_OF_PARTITIONS = frozenset(
    (FaultKind.ERROR, FaultKind.ERROR_AFTER_APPEND, FaultKind.RECORD_ERRORS, FaultKind.OMIT_PARTITION)
)
"""Kinds that apply to one partition of a request; the others apply to a request with all its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The requests that a rule applies to; None stands for any."""

    api: ApiKey | None = None
    node_id: int | None = None
    client_id: str | None = None
    topic: str | None = None
    partition: int | None = None

    def _matches(self, request: "Where") -> bool:
        """Whether the rule applies to `request`, all of whose fields are known."""
        return (
            self.api in {None, request.api}
            and self.node_id in {None, request.node_id}
            and self.client_id in {None, request.client_id}
            and self.topic in {None, request.topic}
            and self.partition in {None, request.partition}
        )


def _check_where(where: object) -> None:
    """Refuse what no request has; not in `Where` itself, since brokers make one for each request.

    Raises:
        TypeError: names the field, and what it may be.
        ValueError: a number that is too small.
    """
    if not isinstance(where, Where):
        raise TypeError(f"where must be a Where, not {type(where).__name__}")
    if not isinstance(where.api, ApiKey | None):
        raise TypeError(f"where.api must be an ApiKey, such as ApiKey.PRODUCE, not {where.api!r}")
    for name, number, least in (("node_id", where.node_id, 1), ("partition", where.partition, 0)):
        if number is not None:
            check_whole_number(f"where.{name}", number, least=least)
    for name, text in (("client_id", where.client_id), ("topic", where.topic)):
        if not isinstance(text, str | None):
            raise TypeError(f"where.{name} must be a str, not {type(text).__name__}")


@dataclass(slots=True, eq=False, kw_only=True)
class Fault:
    """One rule. `hits` counts how often it has applied."""

    kind: FaultKind
    where: Where
    times: int | None = 1
    skip: int = 0
    code: int = 0
    """The error code of the response."""

    base_offset: int | None = None
    """The offset beside the error; None for Kafka's, which is -1 before the append and the batch's offset after it."""

    amount: float = 0.0
    """Seconds of a delay, milliseconds of a throttle, bytes claimed by an oversized frame."""

    data: bytes | None = None
    """The bytes to send instead of the response."""

    records: Mapping[int, str | None] = field(default_factory=dict)
    """Rejected records of the batch: index, message (KIP-467)."""

    message: str | None = None
    """The error message beside the code."""

    hits: int = 0

    def __post_init__(self) -> None:
        """Check the arguments here: inside a broker a wrong one would fail far from the test's own line, or do nothing.

        Raises:
            TypeError: an argument of the wrong type, or a field of `where`.
            ValueError: a number that is too small, or that no response has room for; a partition where whole requests
                are meant.
        """
        _check_where(self.where)
        self._check_counts()
        self._check_amount()
        self._check_content()
        if self.kind not in _OF_PARTITIONS and (self.where.topic, self.where.partition) != (None, None):
            raise ValueError(
                f"{self.kind.name} applies to whole requests: where may have api, node_id and client_id, not topic or "
                "partition, which are for error, error_after_append, record_errors and omit_partition"
            )

    def _check_counts(self) -> None:
        if self.times is not None:
            check_whole_number("times", self.times, least=0, kind="an int, or None for as often as it is met")
        check_whole_number("skip", self.skip, least=0)
        check_whole_number("code", self.code, least=-_INT16, most=_INT16 - 1, kind="an ErrorCode or an int")
        if self.base_offset is not None:
            check_whole_number("base_offset", self.base_offset, least=-_INT64, most=_INT64 - 1, kind="an int or None")

    def _check_amount(self) -> None:
        match self.kind:
            case FaultKind.THROTTLE:
                check_whole_number("throttle_ms", self.amount, least=0, most=_INT32 - 1)
            case FaultKind.OVERSIZED_FRAME:
                check_whole_number("size", self.amount, least=-_INT32, most=_INT32 - 1)
            case FaultKind.DELAY_REQUEST | FaultKind.DELAY_RESPONSE | FaultKind.DELAY_TLS:
                check_seconds("seconds", self.amount)

    def _check_content(self) -> None:
        is_garbage = self.kind in {FaultKind.GARBAGE, FaultKind.GARBAGE_TLS}
        if is_garbage and not isinstance(self.data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes, not {type(self.data).__name__}")
        if not isinstance(self.records, Mapping):
            raise TypeError(f"records must be a mapping of indexes to messages, not {type(self.records).__name__}")
        for index, message in self.records.items():
            check_whole_number("records: an index", index, least=0, most=_INT32 - 1)
            if not isinstance(message, str | None):
                raise TypeError(f"records[{index}] must be a str or None, not {type(message).__name__}")

    def _applies(self, request: Where) -> bool:
        """Whether the rule applies now; counts down `skip` and `times`."""
        if self.times == 0 or not self.where._matches(request):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        self.hits += 1
        return True


class Faults:  # noqa: PLR0904 - one method per fault
    """All rules of a cluster, and a method per fault that adds one.

    Each takes `times` and `skip`, and selects requests by `api`, `node_id`, `client_id` (errors and `omit_partition`
    also by `topic` and `partition`). Each returns its `Fault`, for `remove`.

    Args:
        released: called when a stall is removed, so that the requests it held can continue.
    """

    def __init__(self, released: Callable[[Fault], None]) -> None:
        self._rules: list[Fault] = []
        self._released = released
        self._kinds: dict[FaultKind, list[Fault]] = {}
        """The rules that may still apply, by kind."""

    def add(self, fault: Fault) -> Fault:
        """Add a rule."""
        self._rules.append(fault)
        self._kinds.setdefault(fault.kind, []).append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a rule; a stall releases the requests that it held."""
        if fault in self._rules:
            self._rules.remove(fault)
            self._retire(fault)
            self._released(fault)

    def clear(self) -> None:
        """Remove all rules."""
        for fault in list(self._rules):
            self.remove(fault)

    def _take(self, kind: FaultKind, request: Where, *, names_topic: bool = False) -> Fault | None:
        """Return the rule of this kind that applies now, or None; `names_topic`: only rules with a topic."""
        rules = (rule for rule in self._kinds.get(kind, ()) if rule.where.topic is not None or not names_topic)
        applying = next((rule for rule in rules if rule._applies(request)), None)
        if applying is not None and applying.times == 0:
            self._retire(applying)
        return applying

    def _retire(self, fault: Fault) -> None:
        """Drop a rule that was removed or has applied `times` times."""
        rules = self._kinds.get(fault.kind, [])
        if fault in rules:
            rules.remove(fault)
        if not rules:
            self._kinds.pop(fault.kind, None)

    def error(
        self, code: int, where: Where, *, times: int | None = 1, skip: int = 0, base_offset: int | None = None
    ) -> Fault:
        """Respond with an error code instead of serving the request; Produce appends nothing."""
        return self.add(
            Fault(kind=FaultKind.ERROR, where=where, code=code, times=times, skip=skip, base_offset=base_offset)
        )

    def error_after_append(
        self, code: int, where: Where, *, times: int | None = 1, skip: int = 0, base_offset: int | None = None
    ) -> Fault:
        """Append the records of a Produce request, then respond with an error code, by default with their offset."""
        kind = FaultKind.ERROR_AFTER_APPEND
        return self.add(Fault(kind=kind, where=where, code=code, times=times, skip=skip, base_offset=base_offset))

    def record_errors(self, records: Mapping[int, str | None], where: Where, *, code: int = 87) -> Fault:
        """Reject one batch because of some of its records (KIP-467)."""
        if not isinstance(records, Mapping):
            raise TypeError(f"records must be a mapping of indexes to messages, not {type(records).__name__}")
        message = f"One or more records have been rejected due to {len(records)} record errors in total"
        return self.add(
            Fault(kind=FaultKind.RECORD_ERRORS, where=where, code=code, records=dict(records), message=message)
        )

    def omit_partition(self, where: Where, *, times: int | None = 1) -> Fault:
        """Serve a Produce request, and leave the partition out of the response."""
        return self.add(Fault(kind=FaultKind.OMIT_PARTITION, where=where, times=times))

    def throttle(self, throttle_ms: int, where: Where, *, times: int | None = 1) -> Fault:
        """Respond with a throttle time, and read nothing from the connection for that long (KIP-219)."""
        return self.add(Fault(kind=FaultKind.THROTTLE, where=where, amount=throttle_ms, times=times))

    def drop_connection(
        self, where: Where, *, after_append: bool = False, times: int | None = 1, skip: int = 0
    ) -> Fault:
        """Close the connection instead of serving a request, or after serving it instead of responding."""
        kind = FaultKind.DROP_RESPONSE if after_append else FaultKind.DROP_REQUEST
        return self.add(Fault(kind=kind, where=where, times=times, skip=skip))

    def delay(
        self, seconds: float, where: Where, *, after_append: bool = True, times: int | None = 1, skip: int = 0
    ) -> Fault:
        """Delay the response, or the request before it is served."""
        kind = FaultKind.DELAY_RESPONSE if after_append else FaultKind.DELAY_REQUEST
        return self.add(Fault(kind=kind, where=where, amount=seconds, times=times, skip=skip))

    def stall(self, where: Where, *, times: int | None = None, skip: int = 0) -> Fault:
        """Accept requests and do not serve them until the rule is removed."""
        return self.add(Fault(kind=FaultKind.STALL, where=where, times=times, skip=skip))

    def half_frame(self, where: Where, *, times: int | None = 1, skip: int = 0) -> Fault:
        """Send the first half of the response, then close the connection."""
        return self.add(Fault(kind=FaultKind.HALF_FRAME, where=where, times=times, skip=skip))

    def wrong_correlation_id(self, where: Where, *, times: int | None = 1, skip: int = 0) -> Fault:
        """Respond with a correlation id that no request had."""
        return self.add(Fault(kind=FaultKind.WRONG_CORRELATION_ID, where=where, times=times, skip=skip))

    def garbage(self, data: bytes, where: Where, *, times: int | None = 1, skip: int = 0) -> Fault:
        """Send these bytes, as they are, instead of the response."""
        return self.add(Fault(kind=FaultKind.GARBAGE, where=where, data=data, times=times, skip=skip))

    def oversized_frame(self, where: Where, *, size: int = 2**31 - 1, times: int | None = 1, skip: int = 0) -> Fault:
        """Put a wrong size, huge or negative, in front of the response."""
        return self.add(Fault(kind=FaultKind.OVERSIZED_FRAME, where=where, amount=size, times=times, skip=skip))

    # Instead of a TLS handshake, at the client's first message; `where` may name the node

    def stall_tls(self, where: Where, *, times: int | None = 1, skip: int = 0) -> Fault:
        """Never answer the client's first message."""
        return self.add(Fault(kind=FaultKind.STALL_TLS, where=where, times=times, skip=skip))

    def close_tls(self, where: Where, *, times: int | None = 1, skip: int = 0) -> Fault:
        """Close the connection."""
        return self.add(Fault(kind=FaultKind.CLOSE_TLS, where=where, times=times, skip=skip))

    def garbage_tls(self, data: bytes, where: Where, *, times: int | None = 1, skip: int = 0) -> Fault:
        """Send these bytes, and nothing else."""
        return self.add(Fault(kind=FaultKind.GARBAGE_TLS, where=where, data=data, times=times, skip=skip))

    def delay_tls(self, seconds: float, where: Where, *, times: int | None = 1, skip: int = 0) -> Fault:
        """Answer the client's first message later."""
        return self.add(Fault(kind=FaultKind.DELAY_TLS, where=where, amount=seconds, times=times, skip=skip))
