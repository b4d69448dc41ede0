"""Bugs of connections and of native records."""

from typing import Final

from tests.programs.mutants.mutant import Change, Mutant

CONNECTIONS_AND_RECORDS: Final = (
    Mutant(
        name="unreadable_answer_ends_nothing",
        breaks="a request whose answer cannot be read is neither answered nor lost",
        families=("D20",),
        changes=(
            Change(
                "_network/connection.py",
                "BrokerConnection._end_with_answer",
                """
                    try:
                        if not self._stream.has_left(request):
                            raise ProtocolError('the broker answered a request before it had all of it')
                        request.on_end(Answered(payload, now))
                    except KafkaError:
                        self._spoiled.append(request)
                        raise
                    """,
                """
                    try:
                        if not self._stream.has_left(request):
                            raise ProtocolError('the broker answered a request before it had all of it')
                        request.on_end(Answered(payload, now))
                    except KafkaError:
                        raise
                    """,
            ),
        ),
    ),
    Mutant(
        name="request_never_times_out",
        breaks="a broker that is silent keeps what it was sent",
        families=("D9", "D2"),
        changes=(
            Change(
                "_network/connection.py",
                "BrokerConnection._look_at_clock",
                "self._oldest_since + self._request_timeout_s",
                "self._last_used + 60 * self._request_timeout_s",
            ),
        ),
    ),
    Mutant(
        name="close_forgets_what_is_on_the_wire",
        breaks="what was sent and not answered when the producer is closed never ends",
        families=("D16",),
        changes=(
            Change(
                "_accumulator/record_accumulator.py",
                "RecordAccumulator.unfinished",
                "[*queue.on_wire, *queue.queued]",
                "[*queue.queued]",
            ),
        ),
    ),
    Mutant(
        name="native_line_is_overtaken",
        breaks="a record is appended while an earlier one of its partition waits for memory",
        families=("D8", "D1"),
        changes=(
            Change(
                "_native/append.pxd",
                "room_for",
                """
                    if slot.waiting_count:
                        return None
                    """,
                "",
            ),
        ),
    ),
    Mutant(
        name="native_part_not_renumbered",
        breaks="the second half of a split batch does not begin with record 0",
        families=("D17",),
        changes=(
            Change(
                "_native/renumber.pyx",
                "rewrite",
                "out = put_varint(out, kept)",
                "out = put_varint(out, offset_delta)",
            ),
            Change(
                "_native/renumber.pyx",
                "rewrite",
                "length -= varint_size(offset_delta) - varint_size(kept)",
                "",
            ),
        ),
    ),
    Mutant(
        name="native_move_loses_waiters",
        breaks="a waiter for a record of a split batch waits forever",
        families=("D17", "D8"),
        changes=(
            Change(
                "_native/delivery.pyx",
                "move",
                """
                    if delivery._has_waiters():
                        delivery.register(part)
                    """,
                """
                    if delivery._has_waiters() and part is parts[0][1]:
                        delivery.register(part)
                    """,
            ),
        ),
    ),
)
