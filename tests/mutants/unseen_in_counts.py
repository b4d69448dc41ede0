"""Bugs in what is counted, measured and told, which nobody saw when they were first tried; now tests do."""

from tests.mutants.mutant import Change, Mutant


def _mutant(name: str, breaks: str, tests: str, *changes: Change) -> Mutant:
    return Mutant(name=name, breaks=breaks, tests=(tests,), changes=changes)


UNSEEN_IN_COUNTS = (
    _mutant(
        "clock_in_hundredths",
        "C6: within a second the clock of records runs ten times slower",
        "tests/native/test_wall_clock.py",
        Change("_native/append.pyx", "now.tv_nsec // 1000000", "now.tv_nsec // 10000000"),
    ),
    _mutant(
        "measuring_ends_the_append",
        "CRASH: a second record sent inside an append writes over the headers of the outer one",
        "tests/native/test_append_inside_append.py",
        Change("_native/append.pyx", "            self.busy = was_busy\n", "            self.busy = False\n"),
    ),
    _mutant(
        "line_lost_with_an_error",
        "I3: records that wait behind one that could not be placed are overtaken",
        "tests/native/test_append_inside_append.py",
        Change(
            "_native/append.pyx",
            (
                "            try:\n"
                "                return self._append(slots, &record, None)\n"
                "            finally:\n"
                "                slot.line += line\n"
            ),
            (
                "            delivery = self._append(slots, &record, None)\n"
                "            slot.line += line\n"
                "            return delivery\n"
            ),
        ),
    ),
    _mutant(
        "cancel_forgets_the_context",
        "callbacks of a delivery that was cancelled run in the context of whoever cancelled it",
        "tests/delivery/test_delivery_cancelled.py",
        Change(
            "_native/delivery.pyx",
            "            result.loop.call_soon(callback, self, context=context)\n        return True",
            "            result.loop.call_soon(callback, self)\n        return True",
        ),
    ),
    _mutant(
        "part_of_part_forgets_attempts",
        "C3: an error tells of fewer attempts than there were",
        "tests/test_settlement.py",
        Change("core/batch_splitter.py", "batch.attempts_before + batch.attempts", "batch.attempts"),
    ),
    _mutant(
        "split_part_is_no_split",
        "parts that are taken apart again are not counted",
        "tests/test_settlement.py",
        Change(
            "settlement.py",
            "        self.counts.batches_split += 1\n",
            "        self.counts.batches_split += not batch.is_part\n",
        ),
    ),
    _mutant(
        "retried_batches_are_counted",
        "a batch that is sent again counts as one record",
        "tests/test_settlement.py",
        Change("settlement.py", "self.counts.records_retried += batch.count", "self.counts.records_retried += 1"),
    ),
    _mutant(
        "unanswered_bytes_not_counted",
        "acks=0: nothing seems to be sent",
        "tests/network/test_connection_acks_0.py",
        Change(
            "network/outgoing_stream.py",
            "        self._environment.counters.bytes_out += size\n",
            ("        if request.expects_response:\n            self._environment.counters.bytes_out += size\n"),
        ),
    ),
    _mutant(
        "lost_connection_was_never_made",
        "each attempt that fails is counted twice, and each connection that is lost as such an attempt",
        "tests/network/test_node_link.py",
        Change(
            "network/node_link.py",
            "        self.failures += 1\n",
            "        self.failures += 1\n        self._environment.counters.connection_failures += 1\n",
        ),
    ),
    _mutant(
        "interceptor_told_what_was_asked_for",
        "an interceptor is not told which partition has refused a record",
        "tests/journeys/test_code_of_the_user.py",
        Change(
            "interceptors.py",
            "partition = -1 if error.partition is None else error.partition\n",
            "partition = -1\n",
        ),
    ),
    _mutant(
        "one_more_that_looks_alike",
        "what follows the errors of records is read as another one of them",
        "tests/protocol/test_produce.py",
        Change(
            "protocol/produce.py",
            "min(most, (len(reader.payload) - reader.position) // size)",
            "min(most + 1, (len(reader.payload) - reader.position) // size)",
        ),
    ),
    _mutant(
        "no_instance_id_is_an_empty_one",
        "C8: a group looks for a static member without a name, and refuses the offsets",
        "tests/protocol/test_transaction_messages.py",
        Change(
            "protocol/offset_messages.py",
            "string(member.group_instance_id, flexible=True)",
            'string(member.group_instance_id or "", flexible=True)',
        ),
    ),
    _mutant(
        "few_retries_is_thirty",
        "RETRIES: what repetition is unlikely to change is repeated thirty times",
        "tests/core/test_produce_outcome.py",
        Change("core/produce_outcome.py", "FEW_RETRIES: Final = 3\n", "FEW_RETRIES: Final = 30\n"),
    ),
    _mutant(
        "whatever_is_on_the_wire_is_held_up",
        "I20: whoever waits for memory goes elsewhere while his partition is about to give some back",
        "tests/core/test_partition_queue.py",
        Change(
            "core/partition_queue.py",
            "            return self.on_wire[0].attempts > 1\n",
            "            return self.on_wire[0].attempts > 0\n",
        ),
    ),
    _mutant(
        "gone_partition_is_off_the_wire",
        "I10: under V1 an abort overtakes what is on the wire to a partition that its topic has no longer",
        "tests/core/test_partitions_renewed.py",
        Change(
            "core/partitions_in_use.py",
            "chain(*(slots.values() for slots in self._slots.values()), self._gone.values())",
            "chain(*(slots.values() for slots in self._slots.values()))",
        ),
    ),
)
