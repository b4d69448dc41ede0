"""With ignored keys, a record with a key may go to any partition, like one without."""

from tests.fakes.core_parts import CoreParts


def test_keyed_record_does_not_overtake_keyless_waiters() -> None:
    core = CoreParts(ignore_keys=True)
    core.wait_in_queue(b"first", partition=None)

    assert core.appender.append("t", b"later", b"key", None, None, None, None) is None


def test_keyed_record_that_waited_may_go_to_any_partition() -> None:
    core = CoreParts(leaders=(1, 1, 1), ignore_keys=True)

    assert core.appender.partition_of("t", b"key", None) is None
