"""Bugs that no run and no test saw: of node 0 alone, in whom the network asks and when, and in the native modules."""

from tests.mutants.mutant import Change, Mutant


def _mutant(name: str, breaks: str, tests: str, *changes: Change) -> Mutant:
    return Mutant(name=name, breaks=breaks, tests=(tests,), changes=changes)


_AT_NODE_0 = (
    _mutant(
        "node_0_is_any_node",
        "what is asked of node 0 is asked of any node",
        "tests/network/test_node_zero.py",
        Change(
            "network/network_client.py",
            "        if node_id is None:\n            return await self._any_broker",
            "        if not node_id:\n            return await self._any_broker",
        ),
    ),
    _mutant(
        "node_0_is_not_known",
        "node 0 is not among those that metadata names",
        "tests/network/test_node_zero.py",
        Change(
            "network/node_links.py",
            "self._links.values() if link.node.id >= 0]",
            "self._links.values() if link.node.id > 0]",
        ),
    ),
    _mutant(
        "node_0_fails_silently",
        "metadata is not asked for when node 0 fails",
        "tests/network/test_node_zero.py",
        Change(
            "network/node_links.py",
            "link.has_failed and link.node.id >= 0 and",
            "link.has_failed and link.node.id > 0 and",
        ),
    ),
    _mutant(
        "node_0_never_moves",
        "node 0 is looked for where it was before",
        "tests/network/test_node_zero.py",
        Change(
            "network/node_links.py", "if node_id >= 0 and not _is_same_place", "if node_id > 0 and not _is_same_place"
        ),
    ),
    _mutant(
        "node_0_leads_nothing",
        "node 0 has no reserve of memory, and its partitions cannot be had for keyless records",
        "tests/core/test_node_zero.py",
        Change(
            "core/partitions_in_use.py",
            "for node_id in node_ids if node_id != NO_LEADER",
            "for node_id in node_ids if node_id > 0",
        ),
    ),
    _mutant(
        "node_0_is_never_moving",
        "who waits for memory of a partition of node 0 gets a small batch",
        "tests/core/test_node_zero.py",
        Change(
            "core/partition_queue.py",
            "not self.is_held_up and self.leader_id is not None",
            "not self.is_held_up and bool(self.leader_id)",
        ),
    ),
    _mutant(
        "node_0_holds_others_up",
        "who waits for node 0 stands behind a partition of it that is held up",
        "tests/core/test_memory_lines.py",
        Change(
            "core/memory_lines.py",
            "HELD_UP if queue.is_held_up and queue.leader_id is not None else",
            "HELD_UP if queue.is_held_up and queue.leader_id else",
        ),
    ),
    _mutant(
        "node_0_keeps_no_late_copies",
        "what node 0 may still get of a request that it has not answered is not waited for",
        "tests/core/test_node_zero.py",
        Change("core/late_copies.py", "if node_id is not None and (is_renewal", "if node_id and (is_renewal"),
    ),
)

_IN_THE_NETWORK = (
    _mutant(
        "epoch_alone_says_whose_batch",
        "a late batch of another producer id with the same epoch counts as the present transaction's",
        "tests/core/test_transaction_identity.py",
        Change(
            "core/transaction_identity.py",
            "(batch.identity.producer_id, batch.identity.epoch) == (self.producer_id, self.epoch)",
            "batch.identity.epoch == self.epoch",
        ),
    ),
    _mutant(
        "one_failed_node_brings_bootstrap",
        "KIP-899: the bootstrap addresses are asked as soon as one node is down",
        "tests/network/test_node_links.py",
        Change(
            "network/node_links.py",
            "if known and not all(link.has_failed for link in known)",
            "if known and not any(link.has_failed for link in known)",
        ),
    ),
    _mutant(
        "rebootstrap_tells_nobody",
        "KIP-1102: who waits for a broker asks the bootstrap addresses a second later",
        "tests/network/test_rebootstrap.py",
        Change(
            "network/node_links.py",
            "        self._asks_known = False\n        self._announce()\n",
            "        self._asks_known = False\n",
        ),
    ),
    _mutant(
        "silent_node_is_least_loaded",
        "a node that has been silent for long is asked first if it has little in flight",
        "tests/network/test_node_choice.py",
        Change(
            "network/node_choice.py",
            "(connection.silent_for_s(now) > _SUSPICIOUS_SILENCE_S, connection.in_flight",
            "(False, connection.in_flight",
        ),
    ),
    _mutant(
        "silent_node_is_asked_at_its_other_address",
        "whoever stands still is asked again by its bootstrap address",
        "tests/network/test_node_choice.py",
        Change("network/node_choice.py", "if link not in asked and link.place not in places]", "if link not in asked]"),
    ),
    _mutant(
        "throttled_node_cannot_be_asked",
        "who asks a node by name is told that it cannot be reached while it is throttled",
        "tests/network/test_node_choice.py",
        Change(
            "network/node_choice.py",
            "any(link.is_open or link.failures == tried.get(link) for link in links)",
            "any(link.failures == tried.get(link) for link in links if not link.is_open)",
        ),
    ),
    _mutant(
        "new_topic_ends_every_pause",
        "a program that sends to ever new topics asks brokers that cannot answer without a pause",
        "tests/network/test_metadata_pauses.py",
        Change(
            "network/metadata_refresher.py",
            "        if self.last_error is not None:\n            await asyncio.sleep(delay_s)\n            return\n",
            "",
        ),
    ),
    _mutant(
        "topic_is_suspected_for_ever",
        "once a produce was refused, older news of the leaders of its topic are believed for ever",
        "tests/network/test_metadata_refresher.py",
        Change("network/metadata_refresher.py", "        self._suspected -= suspected\n", ""),
    ),
    _mutant(
        "closed_connection_keeps_its_timer",
        "a closed connection is kept, and wakes the sender, until its last request would have been too late",
        "tests/network/test_connection_times.py",
        Change(
            "network/connection.py",
            "        if self._watch_timer is not None:\n"
            "            self._watch_timer.cancel()\n"
            "        self._conversation.drop_held()",
            "        self._conversation.drop_held()",
        ),
    ),
    _mutant(
        "adopted_connection_keeps_its_name",
        "errors of a node name the bootstrap address that its connection was made to",
        "tests/network/test_node_links.py",
        Change(
            "network/node_link.py",
            "        if self.connection is not None:\n            self.connection.label = _label(node)\n",
            "",
        ),
    ),
)

_IN_NATIVE_MODULES = (
    _mutant(
        "native_waiters_that_gave_up_add_up",
        "who polls a delivery with time-outs has a list grow",
        "tests/native/test_delivery_waiters.py",
        Change(
            "_native/delivery.pyx",
            "            followers.waiters = [other for other in followers.waiters if not other.done()]\n",
            "",
        ),
    ),
    _mutant(
        "native_late_callback_without_its_context",
        "a callback added to a delivery that is done runs in the context of who adds it",
        "tests/native/test_delivery_waiters.py",
        Change(
            "_native/delivery.pyx",
            "            result.loop.call_soon(callback, self, context=context)\n            return\n",
            "            result.loop.call_soon(callback, self)\n            return\n",
        ),
    ),
    _mutant(
        "native_removed_callbacks_wait",
        "a record whose callbacks were all removed ends the linger of the batch that it gets a place in",
        "tests/native/test_delivery_waiters.py",
        Change(
            "_native/delivery.pyx",
            "        followers.callbacks = kept or None\n        return removed",
            "        followers.callbacks = kept\n        return removed",
        ),
    ),
    _mutant(
        "native_line_joined_while_placing_is_lost",
        "C2: who joins a line while its first is placed is overtaken",
        "tests/native/test_append_inside_append.py",
        Change("_native/append.pyx", "                slot.line += line\n", "                slot.line = line\n"),
    ),
    _mutant(
        "native_ignored_key_chooses",
        "partitioner_ignore_keys: a record that waited goes by its key all the same",
        "tests/native/test_append_ignores_keys.py",
        Change(
            "_native/append.pyx",
            "        if key is None or self._ignore_keys:\n            return None\n",
            "        if key is None:\n            return None\n",
        ),
    ),
    _mutant(
        "native_ignored_key_overtakes",
        "partitioner_ignore_keys: a record with a key overtakes those that wait for any partition",
        "tests/native/test_append_ignores_keys.py",
        Change(
            "_native/append.pyx",
            "record.partition < 0 and (record.key_size < 0 or self._ignore_keys):",
            "record.partition < 0 and record.key_size < 0:",
        ),
    ),
)

UNSEEN_AT_ZERO = (*_AT_NODE_0, *_IN_THE_NETWORK, *_IN_NATIVE_MODULES)
