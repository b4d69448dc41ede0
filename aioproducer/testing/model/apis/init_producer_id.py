"""InitProducerId 0-6: a producer id for an idempotent producer.

Transactional ids are not served: they are refused for good, which every client reports at once.
"""

from typing import cast

from aioproducer.testing.model.control_wire import InitProducerIdRequest
from aioproducer.testing.model.exchange import Exchange

COORDINATOR_LOAD_IN_PROGRESS = 14
INVALID_REQUEST = 42
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53


def answer_init_producer_id(exchange: Exchange) -> None:
    """Answer with a new id and epoch 0."""
    request = cast("InitProducerIdRequest", exchange.request())
    error = exchange.injected_error()
    if not request.transactional_id and request.transactional_id is not None:
        error = error or INVALID_REQUEST
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        error = error or INVALID_REQUEST
    if request.transactional_id is not None:
        error = error or TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer_id = None if error else exchange.cluster.producer_ids.take(exchange.now)
    if producer_id is None:
        refusal = {"error_code": error or COORDINATOR_LOAD_IN_PROGRESS, "producer_id": -1, "producer_epoch": -1}
        exchange.reply_tree(refusal, exchange.now)
    else:
        exchange.reply_tree({"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}, exchange.now)
