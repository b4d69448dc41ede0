"""Bugs of connections, also authenticated and encrypted ones, of logs and of native records."""

from typing import Final

from tests.programs.mutants.mutant import Change, Mutant

_D15: Final = ("D15",)
_SASL: Final = "_network/sasl_connection.py"
_OF_SASL: Final = ("tests/network/test_sasl_connection.py",)

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
        name="event_quotes_the_batch",
        breaks="a record is in the log of the application",
        families=("D9", "D8"),
        changes=(
            Change(
                "_sender/completion.py", "Completion.fail_some", "error.outcome.value", "bytes(batch.records()[:60])"
            ),
        ),
    ),
    Mutant(
        name="oversized_answer_is_awaited",
        breaks="an answer of any announced size is collected",
        families=("D20",),
        changes=(
            Change("_protocol/framing.py", "FrameProtocol._refuse_strangers", "size > largest", "size > largest * 256"),
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
    Mutant(
        name="native_one_waiter_is_woken",
        breaks="of several who await one record, one is told",
        families=("D1", "D8"),
        changes=(
            Change(
                "_native/delivery.pyx",
                "wake_delivery",
                """
                    looked = True
                    future.set_result(None)
                    """,
                """
                    looked = True
                    future.set_result(None)
                    break
                    """,
            ),
        ),
    ),
    Mutant(
        name="request_slips_into_an_exchange",
        breaks="a request is sent between SaslHandshake and the last token",
        families=_D15,
        tests=_OF_SASL,
        changes=(
            Change(
                _SASL,
                "SaslConnection._may_pass",
                "self._phase is not _Phase.SILENT and now < self._expires_at",
                "now < self._expires_at",
            ),
        ),
    ),
    Mutant(
        name="refused_token_leaves_doubt",
        breaks="what was behind a refused token counts as perhaps written, and is not sent again without need",
        families=_D15,
        tests=_OF_SASL,
        changes=(
            Change(_SASL, "SaslConnection._advance", "self._refused_at = self._token_end", "self._refused_at = None"),
        ),
    ),
    Mutant(
        name="refused_token_loses_what_was_held",
        breaks="a request that waited for an authentication that failed never ends",
        families=_D15,
        tests=_OF_SASL,
        changes=(
            Change(
                _SASL,
                "SaslConnection._ends_of_lost",
                "ends += [(request, unprocessed) for request in self._held]",
                "pass",
            ),
        ),
    ),
    Mutant(
        name="positions_in_ciphertext",
        breaks="ciphertext that is not sent counts as plaintext, so what was sent counts as not written",
        families=_D15,
        tests=("tests/network/test_tls_transport.py",),
        changes=(
            Change(
                "_network/tls.py",
                "TlsTransport.get_write_buffer_size",
                "self._sealed.unsent(self._raw.get_write_buffer_size())",
                "self._raw.get_write_buffer_size()",
            ),
        ),
    ),
)
