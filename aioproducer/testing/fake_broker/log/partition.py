"""One partition: its leader, its copies, its log, and how far the copies have come.

Replication is a model: there is one log, the leader's, and for each follower the offset up to which it has the same.

    offset     0 ........ high watermark ........ a follower's end ........ log end
               consumers see this |   in the leader's log and perhaps elsewhere   |

A follower that is alive and not held copies everything `replication_delay_s` after it was appended. The high watermark
is the lowest end among the ISR. When the leader dies, the next one is taken from the ISR, and the records it had not
copied are cut off: that is how `acks=1` loses records. A follower that is behind for too long leaves the ISR.
read_committed consumers read below the last stable offset (`producer_state`).

Source: Partition, UnifiedLog and ReplicationControlManager in Apache Kafka.
"""

from collections.abc import Callable, Sequence
from functools import partial

from aioproducer.testing.fake_broker.log.partition_log import PartitionLog
from aioproducer.testing.fake_broker.log.producer_state import (
    AbortedTransaction,
    OpenTransactions,
    ProducerStates,
    VerificationStates,
)
from aioproducer.testing.fake_broker.log.record_batch import LoggedBatch, LoggedRecord, decode_records
from aioproducer.testing.fake_broker.schedule import Appointment, Schedule
from aioproducer.testing.fake_broker.settings import ClusterSettings
from aioproducer.testing.fake_broker.topic_configs import TopicConfig

NO_LEADER = -1


class Partition:
    """One partition of one topic; all brokers of the model share this object."""

    def __init__(self, replicas: list[int], settings: ClusterSettings, schedule: Schedule) -> None:
        self.replicas = replicas
        self.isr: list[int] = list(replicas)
        self.leader: int = replicas[0]
        self.leader_epoch: int = 0
        self.log: PartitionLog = PartitionLog()
        self.producers: ProducerStates = ProducerStates(must_start_at_zero=settings.profile.sequence_must_start_at_zero)
        self.transactions: OpenTransactions = OpenTransactions()
        self.verifications: VerificationStates = VerificationStates()
        self.high_watermark: int = 0
        self.is_deleted: bool = False
        self._settings = settings
        self._schedule = schedule
        self._ends = dict.fromkeys(replicas, 0)
        self._offline: set[int] = set()
        self._held: set[int] = set()
        self._restarted: set[int] = set()
        self._stragglers: dict[int, Appointment] = {}  # of each held follower that is behind: when it leaves the ISR
        self._watchers: dict[Callable[[float], None], None] = {}

    # Called by brokers

    @property
    def offline_replicas(self) -> list[int]:
        return [node for node in self.replicas if node in self._offline]

    @property
    def is_led(self) -> bool:
        """Whether there is a leader whose broker is up."""
        return self.leader != NO_LEADER and self.leader not in self._offline

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which every transaction has ended; read_committed consumers read below it."""
        return self.transactions.last_stable_offset(self.high_watermark)

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has written here, at this epoch, in its open transaction."""
        if self.transactions.first_offset(producer_id) is None:
            return False
        entry = self.producers.entry(producer_id)
        return not self._settings.profile.verifies_epochs or (entry is not None and entry.epoch == epoch)

    def watch(self, watcher: Callable[[float], None]) -> None:
        """Call `watcher(now)` once, when the high watermark, the leader or the ISR has changed."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Callable[[float], None]) -> None:
        self._watchers.pop(watcher, None)

    def append(self, batch: LoggedBatch, config: TopicConfig, *, now: float) -> None:
        """Append a batch to the leader's log and let the followers copy it."""
        self.log.append(batch, segment_bytes=config.segment_bytes, segment_ms=config.segment_ms)
        self.producers.note(batch)
        self.transactions.note(batch)
        self.verifications.appended(batch)
        if config.retention_bytes >= 0:
            self.log.drop_front(keep_bytes=config.retention_bytes)
        self._ends[self.leader] = self.log.end_offset
        self._replicate(now)

    # Failures of brokers

    def move_leader(self, node_id: int, now: float) -> None:
        """Make a live node of the ISR the leader; ValueError for another."""
        if node_id not in self.isr or node_id in self._offline:
            raise ValueError(f"node {node_id} is not a live member of the ISR {self.isr}")
        if node_id != self.leader:
            self._elect(node_id, now)

    def lose_leader(self, now: float) -> None:
        """Have no leader until `move_leader` names one, as while a controller is slow to elect."""
        self._elect(NO_LEADER, now)
        self._notify(now)

    def node_died(self, node_id: int) -> None:
        """Stop copying: the broker is dead, though the controller has not noticed yet."""
        self._offline.add(node_id)

    def node_fenced(self, node_id: int, now: float, *, unclean: bool) -> None:
        """The controller has noticed that a broker is dead: it leaves the ISR, and another node leads."""
        if node_id not in self.replicas:
            return
        if len(self.isr) > 1 and node_id in self.isr:
            self.isr.remove(node_id)
        if self.leader == node_id:
            self._elect(self._next_leader(unclean=unclean), now)
        self._progress(now)

    def node_returned(self, node_id: int, now: float, *, was_clean: bool) -> None:
        """The broker is back: it follows, or leads again if no other node could."""
        if node_id not in self.replicas:
            return
        self._offline.discard(node_id)
        if was_clean:
            self._restarted.add(node_id)
        if self.leader == NO_LEADER and node_id in self.isr:
            self._elect(node_id, now)
        self._replicate(now)

    def hold_replication(self, node_id: int, now: float, *, held: bool) -> None:
        (self._held.add if held else self._held.discard)(node_id)
        self._replicate(now)

    def delete(self, now: float) -> None:
        self.is_deleted = True
        self._notify(now)

    # Replication

    def _replicate(self, now: float) -> None:
        if self.leader == NO_LEADER:
            return
        target = self.log.end_offset
        epoch = self.leader_epoch
        for node in self._followers() if len(self.replicas) > 1 else ():
            if self._settings.replication_delay_s > 0 and self._ends[node] < target:
                when = now + self._settings.replication_delay_s
                self._schedule.at(when, partial(self._copied, node, (target, epoch)))
            else:
                self._advance(node, target)
        self._watch_stragglers(now)
        self._progress(now)

    def _followers(self) -> list[int]:
        leader, offline, held = self.leader, self._offline, self._held
        return [node for node in self.replicas if node != leader and node not in offline and node not in held]

    def _copied(self, node: int, copied: tuple[int, int], /, now: float) -> None:
        target, epoch = copied
        if epoch == self.leader_epoch and node in self._followers():
            self._advance(node, min(target, self.log.end_offset))
            self._progress(now)

    def _advance(self, node: int, offset: int) -> None:
        self._ends[node] = max(self._ends[node], offset)
        if self._ends[node] < self.log.end_offset:
            return
        straggler = self._stragglers.pop(node, None)
        if straggler is not None:
            straggler.cancel()
        if node not in self.isr:
            self.isr.append(node)

    def _watch_stragglers(self, now: float) -> None:
        for node in self.isr if self._held else ():
            is_behind = node in self._held and self._ends[node] < self.log.end_offset
            if is_behind and node not in self._stragglers:
                when = now + self._settings.replica_lag_time_max_s
                self._stragglers[node] = self._schedule.at(when, partial(self._drop_straggler, node))

    def _drop_straggler(self, node: int, now: float) -> None:
        self._stragglers.pop(node, None)
        if node in self.isr and node != self.leader and len(self.isr) > 1:
            self.isr.remove(node)
            self._progress(now)

    def _progress(self, now: float) -> None:
        if self.leader != NO_LEADER:
            lowest = min(map(self._ends.__getitem__, self.isr))
            self.high_watermark = max(self.high_watermark, min(lowest, self.log.end_offset))
        self._notify(now)

    def _notify(self, now: float) -> None:
        if not self._watchers:
            return
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            watcher(now)

    # Elections

    def _next_leader(self, *, unclean: bool) -> int:
        candidates = [node for node in self.replicas if node not in self._offline]
        in_sync = [node for node in candidates if node in self.isr]
        if in_sync:
            return in_sync[0]
        return candidates[0] if unclean and candidates else NO_LEADER

    def _elect(self, node: int, now: float) -> None:
        self.leader = node
        self.leader_epoch += 1
        if node == NO_LEADER:
            return
        if node not in self.isr:
            self.isr = [node]
        self._cut_to(self._ends[node])
        if node in self._restarted:
            self._restarted.discard(node)
            self.producers.forget_all_but_last()
        self._replicate(now)

    def _cut_to(self, offset: int) -> None:
        if self.log.truncate(offset):
            self.producers.rebuild(self.log.batches())
            self.transactions.rebuild(self.log.batches())
        end = self.log.end_offset
        self._ends = {node: min(reached, end) for node, reached in self._ends.items()}
        self.high_watermark = min(self.high_watermark, end)


def committed_records(partition: Partition) -> list[LoggedRecord]:
    """Return the records below the last stable offset, without those of aborted transactions."""
    end = partition.last_stable_offset
    aborted = partition.transactions.aborted_between(0, end)
    return [
        record
        for batch in partition.log.batches()
        if not batch.is_control and batch.last_offset < end and not _is_in(aborted, batch)
        for record in decode_records(batch.data)
    ]


def _is_in(aborted: Sequence[AbortedTransaction], batch: LoggedBatch) -> bool:
    return batch.is_transactional and any(
        known.producer_id == batch.producer_id and known.first_offset <= batch.base_offset < known.marker_offset
        for known in aborted
    )
