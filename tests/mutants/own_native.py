"""Bugs in the native modules; each is built anew for its mutant."""

from tests.mutants.mutant import Change, Mutant

OWN_NATIVE = (
    Mutant(
        name="native_delta_to_record_before",
        breaks="C6: a record's time is written relative to the batch's latest, not its first",
        families=("D1",),
        changes=(
            Change(
                "_native/append.pyx",
                "    at = put_varint(at + 1, record.timestamp - builder.base_timestamp)\n",
                "    at = put_varint(at + 1, record.timestamp - (\n"
                "        builder.max_timestamp if builder.count else builder.base_timestamp))\n",
            ),
        ),
    ),
    Mutant(
        name="native_limit_ignored",
        breaks="batch.size: a batch grows until its memory is full",
        families=("D1", "D2"),
        changes=(
            Change(
                "_native/append.pyx",
                " or (end > builder.limit and builder.count):\n",
                ":\n",
            ),
            Change(
                "_native/append.pyx",
                "        if builder.size >= builder.limit:\n",
                "        if builder.size >= builder.chunk.capacity:\n",
            ),
        ),
    ),
    Mutant(
        name="native_sticky_never_changes",
        breaks="KIP-794: records without a key all go to one partition",
        families=(),
        tests=("tests/native", "tests/core/test_open_batches.py", "tests/test_partitioners.py"),
        changes=(
            Change(
                "_native/append.pyx",
                "        topic.sticky_bytes += record.size\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="native_line_is_overtaken",
        breaks="C2: a record is appended while an earlier one of its partition waits for memory",
        families=("D8", "D1"),
        changes=(
            Change(
                "_native/append.pyx",
                "        if slot.line:\n            return None\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="native_room_is_not_moved",
        breaks="C5: a record whose length takes fewer bytes than expected has a gap behind it",
        families=("D1", "D2"),
        changes=(
            Change(
                "_native/append.pyx",
                "        memmove(start + room, body, length)\n",
                "        memmove(start + room, body, length - 1)\n",
            ),
        ),
    ),
    Mutant(
        name="native_part_not_renumbered",
        breaks="C1, I10: the second half of a split batch does not begin with record 0",
        families=("D17",),
        changes=(
            Change(
                "_native/renumber.pyx",
                "        out = put_varint(out, index)\n",
                "        out = put_varint(out, offset_delta)\n",
            ),
            Change(
                "_native/renumber.pyx",
                "        length -= varint_size(offset_delta) - varint_size(index)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="native_move_loses_callbacks",
        breaks="callbacks: those of the second half of a split batch are never called",
        families=("D17",),
        changes=(
            Change(
                "_native/delivery.pyx",
                "                result.add_callback(index - first + there, timestamp, callback, context)\n",
                "                if first == 0:\n"
                "                    result.add_callback(index - first + there, timestamp, callback, context)\n",
            ),
        ),
    ),
    Mutant(
        name="native_move_loses_waiters",
        breaks="I2, I17: who awaits a record of a batch that is split waits for ever",
        families=("D17", "D8"),
        changes=(
            Change(
                "_native/delivery.pyx",
                "                if delivery.has_waiters():\n                    delivery.register(part)\n",
                "                if delivery.has_waiters() and part is parts[0][1]:\n"
                "                    delivery.register(part)\n",
            ),
        ),
    ),
    Mutant(
        name="native_offset_of_second_half",
        breaks="C6: records of the second half of a split batch are told offsets of the whole",
        families=("D17",),
        changes=(
            Change(
                "_native/delivery.pyx",
                "            self._index += there - first\n",
                "            self._index += there\n",
            ),
        ),
    ),
    Mutant(
        name="native_one_waiter_is_woken",
        breaks="I2, I17: of several who await one record, one is told",
        families=("D1", "D8"),
        changes=(
            Change(
                "_native/delivery.pyx",
                "            looked = True\n            future.set_result(None)\n",
                "            looked = True\n            future.set_result(None)\n            break\n",
            ),
        ),
    ),
)
