"""An interceptor of the user's own: it may drop records now and then, and fail in each of its methods."""

from collections.abc import Callable
from random import Random

from aioproducer.interceptors import ProducerInterceptor
from aioproducer.records import Headers, ProducerRecord, RecordMetadata, TopicPartition

_DROPS = 0.03
_FAILS = 0.03


class UsersInterceptor(ProducerInterceptor):
    """Looks at all records, and changes none."""

    def __init__(self, chance: Random, *, errs: bool = True) -> None:
        self._chance = chance
        self._errs = errs
        self._passed = 0
        self._told = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        if self._errs and self._chance.random() < _DROPS:
            return None
        self._passed += 1
        self._fail()
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """Count a record that was delivered."""
        del metadata, headers
        self._told += 1
        self._fail()

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers) -> None:
        del topic_partition, error, headers
        self._told += 1
        self._fail()

    def check(self, violated: Callable[[str, str], None]) -> None:
        """ENDS_ONCE: it is told once what became of each record that it let pass; to be called when all have ended."""
        if self._told != self._passed:
            violated("ENDS_ONCE", f"the interceptor let {self._passed} records pass, and was told of {self._told} ends")

    def _fail(self) -> None:
        if self._errs and self._chance.random() < _FAILS:
            raise RuntimeError("the caller's own interceptor fails")
