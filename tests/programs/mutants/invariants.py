"""Bugs that break an invariant of sending, of connections, records, transactions or security."""

from typing import Final

from tests.programs.mutants.mutant import Change, Mutant

_SESSIONS: Final = ("D15",)
_SASL: Final = "_network/sasl_connection.py"
_OF_SASL: Final = ("tests/network/test_sasl_connection.py",)

INVARIANTS: Final = (
    Mutant(
        "lost_connection_is_not_written",
        "what went down with a connection is believed not to be written",
        Change(
            "_sender/produce_outcome.py",
            "_unanswered",
            "Retry(maybe_written=True, refresh_metadata=True)",
            "Retry(maybe_written=False, refresh_metadata=True)",
        ),
        families=("D9", "D1"),
    ),
    Mutant(
        "last_answer_clears_ambiguity",
        "a refused second attempt makes the first, unanswered one forgotten",
        Change(
            "_sender/settlement.py",
            "Settlement._retry",
            "batch.maybe_written or outcome.maybe_written",
            "outcome.maybe_written",
        ),
        families=("D9",),
    ),
    Mutant(
        "pipelines_before_first_answer",
        "a second batch is sent to a broker that may refuse the first",
        Change(
            "_accumulator/partition.py",
            "Partition.window",
            "self.parts or not self.identity.is_confirmed(connection_number, now)",
            "self.parts",
        ),
        families=("D1", "D7"),
    ),
    Mutant(
        "pipelines_without_idempotence",
        "without sequences several batches of a partition are on the wire",
        Change(
            "_producer/component_settings.py",
            "accumulator_settings",
            "config.max_in_flight_requests_per_connection if config.enable_idempotence else 1",
            "config.max_in_flight_requests_per_connection",
        ),
        families=("D3",),
    ),
    Mutant(
        "backoff_without_timer",
        "a batch that waits for another attempt is forgotten",
        Change(
            "_accumulator/record_accumulator.py",
            "RecordAccumulator.put_back",
            "self._timers.schedule(not_before, partial(self._backoff_over, batch.partition))",
            "pass",
        ),
        families=("D2", "D1"),
    ),
    Mutant(
        "moved_partition_stays_offered",
        "a partition whose leader moved waits in the queue of the old one",
        Change("_accumulator/record_accumulator.py", "ReadyNodes.move", "self.withdraw(partition)", "pass"),
        families=("D5", "D14"),
    ),
    Mutant(
        "shared_chunk_returned_by_first_part",
        "the memory of a split batch is lent again when one of its parts is done",
        Change("_accumulator/buffer_pool.py", "BufferPool.give_back", "holders > 1", "holders > 2"),
        families=("D17",),
    ),
    Mutant(
        "large_record_overtaken_for_ever",
        "while the earliest call gets nothing, later ones go on taking the memory that it waits for",
        Change(
            "_accumulator/wait_queues.py",
            "WaitQueues._try_first",
            "self._open_batches.may_use_common = False",
            "self._open_batches.may_use_common = True",
        ),
        families=("D4", "D8", "D1"),
    ),
    Mutant(
        "waiting_does_not_count_towards_deadline",
        "a record's time begins when it gets memory, not at the call",
        Change(
            "_accumulator/open_batches.py",
            "OpenBatches.take_over_waiting_record",
            "batch.called_at = min(batch.called_at, called_at)",
            "pass",
        ),
        families=("D8", "D9"),
    ),
    Mutant(
        "deadlines_watched_once",
        "after the first deadline of a partition the others are not watched",
        Change(
            "_sender/sender.py",
            "Sender._end_overdue",
            "deadlines.watch_again(partition)",
            "partition.expiry_timer = None",
        ),
        families=("D9",),
    ),
    Mutant(
        "flush_ends_before_its_own",
        "a flush waits for what was accepted before the flush before it",
        Change(
            "_accumulator/flush_generations.py",
            "FlushGenerations.is_finished",
            "return min(self._unfinished, default=generation + 1) > generation",
            "return min(self._unfinished, default=generation + 1) >= generation",
        ),
        families=("D1", "D2"),
    ),
    Mutant(
        "placed_record_leaves_its_flush",
        "a record that had to wait for memory is finished for its flush when it got it",
        Change(
            "_accumulator/open_batches.py",
            "OpenBatches.take_over_waiting_record",
            """
                    if generation < batch.generation:
                        self._generations.enter_again(generation)
                        self._generations.leave(batch.generation)
                        batch.generation = generation
                    """,
            "pass",
        ),
        families=("D8", "D1"),
    ),
    Mutant(
        "parts_share_a_sequence",
        "both halves of a split batch begin with the same sequence",
        Change(
            "_accumulator/batch_splitter.py",
            "_identity_from",
            "batch.identity._replace(base_sequence=sequence_after(batch.identity.base_sequence, first))",
            "batch.identity",
        ),
        families=("D17",),
    ),
    Mutant(
        "split_of_ambiguous_batch",
        "a batch that may be written is split and sent again",
        Change("_sender/produce_outcome.py", "decide", "ambiguous or facts.maybe_written", "ambiguous"),
        families=("D17",),
    ),
    Mutant(
        "freed_place_wakes_nobody",
        "a node is free again, and what waits for it waits for something else to happen",
        Change(
            "_sender/sender.py",
            "Sender._apply_ends",
            "request.node.ready or self._wait_queues.records or self._identity.is_missing",
            "self._wait_queues.records or self._identity.is_missing",
        ),
        families=("D2", "D19"),
    ),
    Mutant(
        "unknown_code_is_success",
        "what a newer broker refuses counts as written",
        Change(
            "_sender/produce_outcome.py",
            "decide",
            "Fail(Outcome.UNKNOWN, response.error_code, ErrorCode.in_words(response.error_code))",
            "_written(response, facts)",
        ),
        families=("D20", "D14"),
    ),
    # connections and native records
    Mutant(
        "unreadable_answer_ends_nothing",
        "a request whose answer cannot be read is neither answered nor lost",
        Change(
            "_network/connection.py",
            "BrokerConnection._end_with_answer",
            """
                    try:
                        if request.end > self._gone():
                            raise ProtocolError('the broker answered a request before it had all of it')
                        request.on_end(_new(Answered, (payload, now)))
                        if self._context.repeated_closes.rows and request.api_key == PRODUCE.key:
                            self._context.repeated_closes.answered(self.label, request.size)
                    except KafkaError:
                        self._spoiled.append(request)
                        raise
                    """,
            """
                    try:
                        if request.end > self._gone():
                            raise ProtocolError('the broker answered a request before it had all of it')
                        request.on_end(_new(Answered, (payload, now)))
                        if self._context.repeated_closes.rows and request.api_key == PRODUCE.key:
                            self._context.repeated_closes.answered(self.label, request.size)
                    except KafkaError:
                        raise
                    """,
        ),
        families=("D20",),
    ),
    Mutant(
        "request_never_times_out",
        "a broker that is silent keeps what it was sent",
        Change(
            "_network/connection.py",
            "BrokerConnection._look_at_clock",
            "self._oldest_since + self._request_timeout_s",
            "self._last_used + 60 * self._request_timeout_s",
        ),
        families=("D9", "D2"),
    ),
    Mutant(
        "close_forgets_what_is_on_the_wire",
        "what was sent and not answered when the producer is closed never ends",
        Change(
            "_accumulator/record_accumulator.py",
            "RecordAccumulator.unfinished",
            "[*partition.on_wire, *partition.queued]",
            "[*partition.queued]",
        ),
        families=("D16",),
    ),
    Mutant(
        "native_line_is_overtaken",
        "a record is appended while an earlier one of its partition waits for memory",
        Change(
            "_native/append.pxd",
            "room_for",
            """
                    if partition.waiting_count:
                        return None
                    """,
            "",
        ),
        families=("D8", "D1"),
    ),
    Mutant(
        "native_part_not_renumbered",
        "the second half of a split batch does not begin with record 0",
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
        families=("D17",),
    ),
    Mutant(
        "native_move_loses_waiters",
        "a waiter for a record of a split batch waits forever",
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
        families=("D17", "D8"),
    ),
    # transactions
    Mutant(
        "commit_ignores_a_failed_record",
        "a transaction is committed without it",
        Change(
            "_transactions/manager.py",
            "TransactionManager._fail_transaction",
            "self.state in MAY_STILL_COMMIT",
            "not self.state",
        ),
        families=("D10", "D13"),
    ),
    Mutant(
        "end_before_records_are_answered",
        "EndTxn overtakes what is on the wire",
        Change(
            "_transactions/manager.py",
            "TransactionManager._wanted",
            "self.state in _ENDING and self._open.is_flushed and (not self._is_renewing)",
            "self.state in _ENDING and (not self._is_renewing)",
        ),
        families=("D10", "D13"),
    ),
    Mutant(
        "abort_under_version_1_waits_for_nothing",
        "EndTxn overtakes what is on the wire, and what arrives after it is committed with the next transaction",
        Change(
            "_transactions/commit_abort.py",
            "TransactionCompleter._begin_abort",
            "self._manager.is_v2 or self._records.is_off_the_wire()",
            "self._manager.number",
        ),
        families=("D10", "D13"),
    ),
    Mutant(
        "no_epoch_after_a_gap",
        "a batch of one transaction ends in the next, or every next one gets 45, on version 1",
        Change(
            "_transactions/manager.py",
            "TransactionManager._end",
            "self._identity.needs_epoch or self._open.has_stray or self._is_renewing",
            "self._open.has_stray or self._is_renewing",
        ),
        Change(
            "_transactions/manager.py",
            "TransactionManager.begin",
            "self._identity.needs_epoch or (is_v2 and was_v1)",
            "is_v2 and was_v1",
        ),
        families=("D13", "D10"),
    ),
    Mutant(
        "offsets_added_are_offsets_committed",
        "they are missing",
        Change(
            "_transactions/open_transaction.py",
            "PendingOffsets.forward",
            "offsets.is_added = True",
            "offsets.is_added = offsets.is_done = True",
        ),
        families=("D11",),
    ),
    Mutant(
        "transaction_is_left_open",
        "an abort of which the coordinator knows is not asked for",
        Change(
            "_transactions/manager.py",
            "TransactionManager._end_unknown",
            "may_be_known or self._joining or self._offsets",
            "self._joining or self._offsets",
        ),
        families=("D10",),
    ),
    Mutant(
        "concurrent_transactions_is_done",
        "an EndTxn that has to wait is taken for one that was done",
        Change("_transactions/verdicts.py", "", "ErrorAction.RETRY_SOON", "ErrorAction.DONE"),
        families=("D11", "D10"),
    ),
    Mutant(
        "lost_commit_is_excluded_by_a_refusal",
        "who was replaced after its commit is told that nothing of it is there, and sends it again",
        Change(
            "_transactions/open_transaction.py",
            "OpenTransaction.was_answered",
            "self.commits_in_doubt -= _is_commit(request)",
            "self.commits_in_doubt *= not _is_commit(request)",
        ),
        tests=("tests/journeys/test_transaction_commit_abort.py",),
    ),
    Mutant(
        "stray_needs_no_epoch",
        "an EndTxn that arrives late ends the next transaction, on version 1",
        Change(
            "_transactions/manager.py",
            "TransactionManager._end",
            "self._identity.needs_epoch or self._open.has_stray or self._is_renewing",
            "self._identity.needs_epoch or self._is_renewing",
        ),
        families=("D13",),
    ),
    Mutant(
        "identity_is_had_again_by_force",
        "who was fenced asks for an epoch as if it were new, and fences its successor",
        Change(
            "_transactions/requests.py",
            "TransactionRequests.init",
            "None if self._identity.producer_id is None else self.identity",
            "None",
        ),
        families=("D12",),
    ),
    # TLS, authentication and sessions
    Mutant(
        "request_slips_into_an_exchange",
        "a request is sent between SaslHandshake and the last token",
        Change(
            _SASL,
            "SaslConnection._may_pass",
            "self._phase is not _Phase.SILENT and now < self._expires_at",
            "now < self._expires_at",
        ),
        families=_SESSIONS,
        tests=_OF_SASL,
    ),
    Mutant(
        "refused_token_loses_what_was_held",
        "a request that waited for an authentication that failed never ends",
        Change(
            _SASL,
            "SaslConnection._ends_of_lost",
            "ends += [(request, unprocessed) for request in self._held]",
            "pass",
        ),
        families=_SESSIONS,
        tests=_OF_SASL,
    ),
    Mutant(
        "server_proves_nothing",
        "a broker that does not know the password is accepted",
        Change(
            "_protocol/sasl_mechanisms.py",
            "Scram._check_server",
            "hmac.compare_digest(_from_base64(attributes.get('v', ''), 'v'), expected)",
            "expected",
        ),
        families=_SESSIONS,
        tests=("tests/protocol/test_sasl_mechanisms.py",),
    ),
    Mutant(
        "names_are_not_checked",
        "any certificate of the authority is accepted for any broker",
        Change(
            "security/_tls_context.py",
            "_without_key",
            "context.check_hostname = rules.checks_name",
            "context.check_hostname = False",
        ),
        families=_SESSIONS,
        tests=("tests/journeys/test_secured.py",),
    ),
    Mutant(
        "first_certificates_are_kept",
        "files that have changed are not read",
        Change(
            "_network/tls_reloader.py",
            "TlsReloader.prepare",
            "stamp == self._stamp or self._has_just_failed(stamp)",
            "True",
        ),
        families=_SESSIONS,
        tests=("tests/network/test_tls_reloader.py",),
    ),
    Mutant(
        "token_per_connection",
        "each authentication fetches a token",
        Change("_network/sasl_client.py", "SaslClient.at_once", "self._tokens.current()", "None"),
        Change("_network/sasl_client.py", "SaslClient.carry_out", "self._tokens.token()", "self._tokens._ask()"),
        families=_SESSIONS,
    ),
    Mutant(
        "positions_in_ciphertext",
        "ciphertext that is not sent counts as plaintext, so what was sent counts as not written",
        Change(
            "_network/tls.py",
            "TlsTransport.get_write_buffer_size",
            "self._sealed.unsent(self._raw.get_write_buffer_size())",
            "self._raw.get_write_buffer_size()",
        ),
        families=_SESSIONS,
        tests=("tests/network/test_tls.py",),
    ),
)
