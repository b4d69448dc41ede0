"""Sends a fresh broker the requests that it handles differently only once, so that traces find it warm."""

from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from tests.contracts.traces.brokers import Broker
from tests.contracts.traces.message_codec import decode_answer
from tests.contracts.traces.steps import Step, request_bytes
from tests.contracts.traces.symbols import Symbols

_FIRST_REQUESTS: tuple[Step, ...] = (
    {"api": "INIT_PRODUCER_ID", "v": 0, "body": {"transactional_id": None, "transaction_timeout": 1000}},
    {"api": "FIND_COORDINATOR", "v": 0, "body": {"key": "anything"}},
    {"api": "FIND_COORDINATOR", "v": 1, "body": {"key": "anything", "key_type": 1}},
    {"api": "INIT_PRODUCER_ID", "v": 0, "body": {"transactional_id": "anything", "transaction_timeout": 1000}},
)
"""The first answers say that ids are being loaded and that the topics of groups and of transactions are being made."""


def warm_up(broker: Broker) -> None:
    symbols = Symbols("", 0)
    for step in _FIRST_REQUESTS:
        while True:
            broker.send(0, [request_bytes(step, step["v"], symbols, correlation_id=0)])
            frame = broker.receive(0)
            if frame is not None and decode_answer(ApiKey[step["api"]], step["v"], frame[4:])["error_code"] == 0:
                break
            broker.wait(0.1)
    broker.close()
