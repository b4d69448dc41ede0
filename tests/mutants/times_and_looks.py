"""Bugs of what a batch says of its times, and of who has looked at a failure."""

from tests.mutants.mutant import Change, Mutant

TIMES_AND_LOOKS = (
    Mutant(
        name="native_given_up_waiter_counts_as_look",
        breaks="I19: a failure that only one looked at who gave up is told by no flush",
        tests=("tests/journeys/test_unseen_failures.py",),
        changes=(
            Change(
                "_native/delivery.pyx",
                "        if not future.done():\n            looked = True\n            future.set_result(None)\n",
                "        looked = True\n        if not future.done():\n            future.set_result(None)\n",
            ),
        ),
    ),
    Mutant(
        name="native_latest_is_the_first",
        breaks="TIMES: a batch says that its first record is its latest",
        families=("D1",),
        changes=(
            Change(
                "_native/append.pyx",
                "    if record.timestamp > builder.max_timestamp:\n",
                "    if builder.count == 1:\n",
            ),
        ),
    ),
    Mutant(
        name="native_latest_is_the_last",
        breaks="TIMES: a part of a split batch says that its last record is its latest",
        families=("D17",),
        changes=(
            Change(
                "_native/renumber.pyx",
                "        highest = max(highest, timestamp_delta)\n",
                "        highest = timestamp_delta\n",
            ),
        ),
    ),
    Mutant(
        name="native_keyless_overtake",
        breaks="C2: a record without a key is appended while an earlier one waits for memory",
        families=("D8",),
        changes=(
            Change(
                "_native/append.pyx",
                "        if topic.line and record.partition < 0 and (record.key_size < 0 or self._ignore_keys):\n"
                "            return None\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="part_keeps_the_latest_time_of_all",
        breaks="TIMES: a part of a split batch says that it has the latest record of the whole",
        families=("D17",),
        changes=(
            Change(
                "core/batch_splitter.py",
                "        times = BatchTimes(batch.times.base_timestamp, batch.times.base_timestamp + latest)\n",
                "        times = batch.times\n",
            ),
        ),
    ),
)
