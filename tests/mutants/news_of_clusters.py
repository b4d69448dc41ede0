"""Bugs of what is believed of topics that were made again, of another cluster, and of brokers that answer no more."""

from tests.mutants.mutant import Change, Mutant

NEWS_OF_CLUSTERS = (
    Mutant(
        name="producer_id_of_another_cluster",
        breaks="C1: two producers to whom two clusters gave one id are taken for one",
        tests=("tests/journeys/test_another_cluster.py",),
        changes=(
            Change(
                "core/partitions_in_use.py",
                "            identity.discard(identity.producer_id)\n",
                "            identity.is_missing  # noqa: B018\n",
            ),
        ),
    ),
    Mutant(
        name="transaction_of_whoever_has_the_same_identity_there",
        breaks="I12: who was led to another cluster aborts what another producer of its transactional id has open",
        tests=("tests/core/test_transaction_successor.py", "tests/journeys/test_another_cluster.py"),
        changes=(
            Change(
                "core/transaction_manager.py",
                "own = self._requests.identity if self._is_renewing or self._open.has_stray else None",
                "own = self._requests.identity",
            ),
        ),
    ),
    Mutant(
        name="partitions_of_another_cluster",
        breaks="I3: partitions go on with the sequences of another cluster's logs",
        tests=("tests/core/test_partitions_renewed.py", "tests/journeys/test_another_cluster.py"),
        changes=(
            Change(
                "core/partitions_in_use.py",
                "            self._renew(topic, cluster.partition_count(name) or len(topic.slots))\n",
                "            del name, topic\n",
            ),
        ),
    ),
    Mutant(
        name="topics_of_another_cluster",
        breaks="C2: leaders of another cluster are newer than those of this one",
        tests=("tests/core/test_cluster.py",),
        changes=(
            Change(
                "core/cluster.py",
                "        known = Cluster.empty() if is_elsewhere else self\n",
                "        known = self\n",
            ),
        ),
    ),
    Mutant(
        name="forgotten_topic_id",
        breaks="I10: a topic that was made again while it was forgotten keeps the partitions that are gone",
        tests=("tests/core/test_partitions_renewed.py", "tests/journeys/test_idle_producer.py"),
        changes=(
            Change(
                "core/partitions_in_use.py",
                "        ids = {self._topic_ids.get(view.name, NO_TOPIC_ID), view.topic_id}\n",
                "        known = self._views.get(view.name, view)\n        ids = {known.topic_id, view.topic_id}\n",
            ),
        ),
    ),
    Mutant(
        name="fewer_partitions_of_a_broker_that_is_behind",
        breaks="I10: partitions that a broker has not heard of yet are taken for gone",
        tests=("tests/core/test_cluster.py",),
        changes=(
            Change(
                "core/cluster.py",
                "        return is_suspected and self._is_true(_COUNT, count)\n",
                "        return is_suspected\n",
            ),
        ),
    ),
    Mutant(
        name="identities_of_partitions_that_come_back",
        breaks="C2: a partition that comes back begins with sequences that its broker knows",
        tests=("tests/core/test_partitions_renewed.py",),
        changes=(
            Change(
                "core/partitions_in_use.py",
                "            self._gone[slot.queue.topic_partition] = slot\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="rebootstrap_counts_from_the_last_answer",
        breaks="KIP-1102: one failed refresh sends an idle producer back to addresses that may be gone",
        tests=("tests/network/test_rebootstrap.py",),
        changes=(
            Change(
                "network/metadata_refresher.py",
                "        self.refreshes += 1\n        self._asking_since = math.inf\n",
                "        self.refreshes += 1\n        self._asking_since = now\n",
            ),
        ),
    ),
    Mutant(
        name="partition_that_the_coordinator_does_not_know",
        breaks="I10: a transaction's partition that is gone is asked for until its deadline, in each transaction",
        tests=("tests/journeys/test_transaction_resumed.py", "tests/journeys/test_transaction_failures.py"),
        changes=(
            Change(
                "transactions/coordinators.py",
                '                self._metadata.request_update("partition_unknown", topic=place.topic)\n',
                "                del place\n",
            ),
        ),
    ),
    Mutant(
        name="offsets_hear_of_an_abort_later",
        breaks="I25: who waits for offsets is told of another task's abort by the next answer",
        tests=("tests/journeys/test_transaction_left_alone.py",),
        changes=(
            Change(
                "transactions/endings.py",
                'was aborted while its commit waited for records"))\n        self._waits.tell()\n',
                'was aborted while its commit waited for records"))\n            self._waits.tell()\n',
            ),
        ),
    ),
    Mutant(
        name="leader_hint_of_a_topic_that_is_gone",
        breaks="I10: the leader epoch of a topic that is gone outlives every true one of the topic made again",
        tests=("tests/core/test_cluster.py", "tests/journeys/test_topic_made_again.py"),
        changes=(
            Change(
                "core/cluster.py",
                "            if view is None or view.topic_id != topic_ids[topic] or not 0 <= partition",
                "            if view is None or not 0 <= partition",
            ),
        ),
    ),
    Mutant(
        name="new_epoch_confirmed_by_an_old_answer",
        breaks="I7: a new identity is pipelined before its first answer",
        tests=("tests/core/test_producer_identity.py", "tests/journeys/test_topic_made_again.py"),
        changes=(
            Change(
                "core/producer_identity.py",
                "        self.is_changing = False\n        self.doubt()",
                "        self.is_changing = False\n        self._recent = ()",
            ),
        ),
    ),
    Mutant(
        name="features_of_a_cluster_that_is_gone",
        breaks="I10: transactions speak as another cluster did",
        tests=("tests/journeys/test_another_cluster.py",),
        changes=(
            Change(
                "network/metadata_refresher.py",
                "            self._client.cluster_changed(answer.from_node)",
                "            self._client.last_error(answer.from_node)",
            ),
        ),
    ),
    Mutant(
        name="keys_among_the_partitions_of_long_ago",
        breaks="C2: a key goes where it went before its topic grew",
        tests=("tests/journeys/test_idle_producer.py", "tests/core/test_partitions_in_use.py"),
        changes=(
            Change("core/partitions_in_use.py", "        topic.held += 1\n", ""),
            Change("core/partitions_in_use.py", "topic.held -= 1  # as", "pass  # as"),
        ),
    ),
    Mutant(
        name="copy_is_known_by_its_offset_alone",
        breaks="C1: a record in the log of a topic made again is told as UNKNOWN",
        tests=("tests/core/test_producer_identity.py", "tests/journeys/test_topic_made_again.py"),
        changes=(
            Change(
                "core/producer_identity.py",
                "and (base_offset, log_append_time) in self._recent\n",
                "and base_offset in dict(self._recent)\n",
            ),
        ),
    ),
    Mutant(
        name="lost_log_is_not_noticed",
        breaks="I12: a transaction is committed without the records that were in the old log",
        tests=("tests/core/test_transaction_identity.py", "tests/journeys/test_topic_made_again.py"),
        changes=(
            Change(
                "core/transaction_identity.py",
                "self._has_lost_log = self._has_lost_log or base_offset <= offset\n",
                "self._has_lost_log = self._has_lost_log or base_offset < 0\n",
            ),
        ),
    ),
)
