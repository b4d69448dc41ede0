"""FindCoordinator 0-6: which broker looks after a consumer group.

Transactional ids have no coordinator here: they are refused for good, which every client reports at once.
"""

from typing import TYPE_CHECKING, cast
from zlib import crc32

from aioproducer.testing.model.exchange import Exchange
from aioproducer.testing.model.messages import Tree

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindOne
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest as FindMany

    from aioproducer.testing.model.cluster import ModelCluster

NOT_COORDINATOR = 16
INVALID_REQUEST = 42
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
_FIRST_FOR_MANY = 4
_GROUP = 0
_TRANSACTION = 1
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


def answer_find_coordinator(exchange: Exchange) -> None:
    """Answer for one key or, since version 4, for many."""
    if exchange.version >= _FIRST_FOR_MANY:
        many = cast("FindMany", exchange.request())
        found = [{"key": key, **_found(exchange, key, many.key_type)} for key in many.coordinator_keys]
        exchange.reply_tree({"coordinators": found}, exchange.now)
    else:
        one = cast("FindOne", exchange.request())
        exchange.reply_tree(_found(exchange, one.key, one.key_type), exchange.now)


def _found(exchange: Exchange, key: str, key_type: int) -> Tree:
    error = exchange.injected_error()
    if key_type not in {_GROUP, _TRANSACTION}:
        error = error or INVALID_REQUEST
    elif key_type != _GROUP:
        error = error or TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    node_id = -1 if error else coordinator_of(exchange.cluster, key)
    broker = exchange.cluster.brokers.get(node_id)
    return {
        "node_id": node_id,
        "host": broker.host if broker else "",
        "port": broker.port if broker else -1,
        "error_code": error,
        "error_message": _message(exchange, error),
    }


def _message(exchange: Exchange, error: int) -> str | None:
    if error == 0:
        return "NONE" if exchange.version < _FIRST_FOR_MANY else ""
    return _MALFORMED if error == INVALID_REQUEST else None


def coordinator_of(cluster: "ModelCluster", group_id: str) -> int:
    """Node id of the broker that looks after a group; another one takes over when it dies."""
    live = cluster.live_nodes()
    return live[crc32(group_id.encode()) % len(live)]


def coordinator_error(exchange: Exchange, group_id: str) -> int:
    """The error for a group's request to this broker; 0 when it is the coordinator."""
    is_here = coordinator_of(exchange.cluster, group_id) == exchange.broker.node_id
    return exchange.injected_error() or (0 if is_here else NOT_COORDINATOR)
