"""FindCoordinator 0-6: which broker looks after a consumer group or a transactional id."""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindOne
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest as FindMany

_FIRST_FOR_MANY = 4
_KINDS = frozenset(int(kind) for kind in CoordinatorKind)
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


def answer_find_coordinator(exchange: Exchange) -> None:
    if exchange.version >= _FIRST_FOR_MANY:
        many = cast("FindMany", exchange.request())
        found = [{"key": key, **_found(exchange, key, many.key_type)} for key in many.coordinator_keys]
        exchange.reply_tree({"coordinators": found}, exchange.now)
    else:
        one = cast("FindOne", exchange.request())
        exchange.reply_tree(_found(exchange, one.key, one.key_type), exchange.now)


def _found(exchange: Exchange, key: str, key_type: int) -> Tree:
    error = exchange.injected_error()
    if key_type not in _KINDS:
        error = error or codes.INVALID_REQUEST
    node_id = -1
    if not error:
        node_id = exchange.cluster.coordinators.node_of(CoordinatorKind(key_type), key, exchange.now)
    host, port = exchange.address_of(node_id) if node_id in exchange.cluster.brokers else ("", -1)
    return {
        "node_id": node_id,
        "host": host,
        "port": port,
        "error_code": error,
        "error_message": _message(exchange, error),
    }


def _message(exchange: Exchange, error: int) -> str | None:
    if error == 0:
        return "NONE" if exchange.version < _FIRST_FOR_MANY else ""
    return _MALFORMED if error == codes.INVALID_REQUEST else None


def coordinator_error(exchange: Exchange, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> int:
    return exchange.injected_error() or place_error(exchange, key, kind)


def place_error(exchange: Exchange, key: str, kind: CoordinatorKind) -> int:
    """Return the error for a request about this key to this broker; 0 if it is the coordinator and has loaded."""
    return exchange.cluster.coordinators.error_at(exchange.broker.node_id, kind, key, now=exchange.now)
