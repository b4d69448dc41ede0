"""InitProducerId 0-6: a producer id, for an idempotent producer or for a transactional id (KIP-360 included)."""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.apis.find_coordinator import place_error
from aioproducer.testing.fake_broker.apis.transactions import answered_to_old_clients
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.transactions.transaction_coordinator import Granted
from aioproducer.testing.fake_broker.transactions.transaction_entry import ProducerIdAndEpoch
from aioproducer.testing.fake_broker.wire import codes

if TYPE_CHECKING:
    from kio.schema.init_producer_id.v6.request import InitProducerIdRequest

FIRST_WITH_FENCED = 4


def answer_init_producer_id(exchange: Exchange) -> None:
    request = cast("InitProducerIdRequest", exchange.request())
    error = exchange.injected_error()
    if not request.transactional_id and request.transactional_id is not None:
        error = error or codes.INVALID_REQUEST
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        error = error or codes.INVALID_REQUEST
    granted = Granted(error) if error else _granted(exchange, request)
    code = answered_to_old_clients(granted.error, is_old=exchange.version < FIRST_WITH_FENCED)
    tree = {"error_code": code, "producer_id": granted.producer_id, "producer_epoch": granted.epoch}
    exchange.reply_tree(tree, exchange.now)


def _granted(exchange: Exchange, request: "InitProducerIdRequest") -> Granted:
    if request.transactional_id is None:
        producer_id = exchange.cluster.producer_ids.take(exchange.now)
        return Granted(codes.COORDINATOR_LOAD_IN_PROGRESS) if producer_id is None else Granted(0, producer_id, 0)
    if error := place_error(exchange, request.transactional_id, CoordinatorKind.TRANSACTION):
        return Granted(error)
    timeout_s = request.transaction_timeout.total_seconds()
    if not 0 < timeout_s <= exchange.cluster.settings.transaction_max_timeout_s:
        return Granted(codes.INVALID_TRANSACTION_TIMEOUT)
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    return exchange.cluster.transactions.init_producer_id(
        request.transactional_id, timeout_s, expected, now=exchange.now
    )
