"""What is asked of coordinators, in which order, and what their answers make of a transaction. No network."""

import random
from collections.abc import Collection

import pytest

from aioproducer.core.partition_queue import PartitionQueue
from aioproducer.core.retry_backoff import ExponentialBackoff
from aioproducer.core.transaction_identity import TransactionalIdentity
from aioproducer.core.transaction_manager import TransactionManager
from aioproducer.core.transaction_requests import OffsetsToSend, TransactionAnswer, TransactionRequest
from aioproducer.core.transaction_states import TransactionState
from aioproducer.errors import (
    BrokerConnectionError,
    BrokerError,
    GroupAuthorizationError,
    KafkaError,
    ProducerFencedError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)
from aioproducer.protocol.messages import ProducerIdAnswer
from aioproducer.protocol.transaction_messages import (
    CodeAnswer,
    CoordinatorAnswer,
    EndTxnAnswer,
    PartitionResult,
    PartitionsAnswer,
)
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

State = TransactionState
LOST = BrokerConnectionError("lost")
OFFSETS = {TopicPartition("orders", 0): OffsetAndMetadata(7)}
READERS = ConsumerGroupMetadata("readers")
STRAY_DELAY_S = 30.0


class Scene:
    """A manager, the brokers' side in the hands of the test, and a clock that it sets."""

    def __init__(self, *, version: int = 2) -> None:
        self.now = 1000.0
        self.version = version
        self.identity = TransactionalIdentity()
        backoff = ExponentialBackoff(100, 1000, jitter=0.0, random=random.Random(1))
        self.manager = TransactionManager(
            "billing-1", timeout_ms=60_000, identity=self.identity, backoff=backoff, stray_delay_s=STRAY_DELAY_S
        )
        self.joined: list[PartitionQueue] = []
        self.manager.on_joined = self.joined.extend

    def queue(self, number: int = 0, topic: str = "t") -> PartitionQueue:
        """A partition in use."""
        return PartitionQueue(TopicPartition(topic, number), self.identity.of_partition(), max_in_flight=5)

    def ask(self) -> TransactionRequest:
        """The request that goes out now; whoever coordinates is found on the way."""
        request = self.manager.next_request(self.now)
        assert request is not None, f"nothing is asked: {self.manager!r}"
        if request.api.name == "FindCoordinator":
            self.manager.sent(request)
            self.manager.answered(request, CoordinatorAnswer(0, 0, 1, "h", 9092), self.now)
            return self.ask()
        self.manager.sent(request)
        return request

    def asked(self) -> str | None:
        """Its name; None if nothing is to be asked now."""
        request = self.manager.next_request(self.now)
        return None if request is None else request.api.name

    def answer(self, request: TransactionRequest, code: int = 0) -> None:
        """Answer with a code; identities get a new epoch."""
        self.manager.answered(request, self._answer_to(request, code), self.now)

    def _answer_to(self, request: TransactionRequest, code: int) -> TransactionAnswer:
        match request.api.name:
            case "InitProducerId":
                epoch = self.identity.first_epoch + 1 if self.identity.producer_id is not None else 0
                return ProducerIdAnswer(0, code, -1 if code else 77, -1 if code else epoch)
            case "EndTxn":
                has_next = self.version >= 2 and not code
                return EndTxnAnswer(0, code, *((77, self.identity.first_epoch + 1) if has_next else (-1, -1)))
            case "AddOffsetsToTxn" | "FindCoordinator":
                return CodeAnswer(0, code)
        asked = request.subject.offsets if isinstance(request.subject, OffsetsToSend) else request.subject
        assert isinstance(asked, Collection)
        return PartitionsAnswer(0, [PartitionResult(place.topic, place.partition, code) for place in asked])

    def do(self, name: str, code: int = 0) -> TransactionRequest:
        """Have a request go out, which must be that one, and answer it."""
        request = self.ask()
        assert request.api.name == name
        self.answer(request, code)
        return request

    def ready(self) -> "Scene":
        """Have an identity."""
        self.manager.initialize()
        self.do("InitProducerId")
        return self

    def begun(self, *partitions: int) -> "Scene":
        """Have a transaction open that writes to these partitions, all of them added."""
        if self.manager.state is State.UNINITIALIZED:
            self.ready()
        assert self.manager.begin(self.version)
        for number in partitions:
            self.manager.use(self.queue(number))
        if partitions and self.version < 2:
            self.do("AddPartitionsToTxn")
        return self

    def is_in(self, state: TransactionState) -> bool:
        """Whether the manager is in a state; asked anew each time."""
        return self.manager.state is state

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.now += seconds


def on_both() -> pytest.MarkDecorator:
    """Run a test on transactions V1 and V2."""
    return pytest.mark.parametrize("version", [0, 2], ids=["V1", "V2"])


# Identity


def test_identity_is_asked_of_the_coordinator_that_any_broker_names() -> None:
    """FindCoordinator first, then InitProducerId without an id: whoever had the name is fenced."""
    scene = Scene()
    assert scene.asked() is None
    scene.manager.initialize()

    finding = scene.manager.next_request(scene.now)
    assert finding is not None
    assert (finding.api.name, scene.manager.node_of(finding)) == ("FindCoordinator", None)
    scene.manager.answered(finding, CoordinatorAnswer(0, 0, 4, "h", 9092), scene.now)
    asking = scene.manager.next_request(scene.now)

    assert asking is not None
    assert (asking.api.name, scene.manager.node_of(asking)) == ("InitProducerId", 4)
    assert scene.manager.next_request(scene.now) is None  # one at a time
    scene.answer(asking)
    assert (scene.manager.state, scene.identity.producer_id) == (State.READY, 77)


@pytest.mark.parametrize(
    "code, kind, hint",
    [
        (53, TransactionalIdAuthorizationError, "grant Write and Describe on the transactional id"),
        (50, BrokerError, "lower transaction_timeout_ms"),
        (90, ProducerFencedError, "a newer producer has taken it over, or the transaction timed out"),
        (47, ProducerFencedError, "a newer producer has taken it over, or the transaction timed out"),
    ],
)
def test_refusal_of_an_identity_is_the_end_and_says_what_to_do(code: int, kind: type[KafkaError], hint: str) -> None:
    """An authorization failure must not wedge the client (KAFKA-13668)."""
    scene = Scene()
    scene.manager.initialize()

    scene.do("InitProducerId", code)

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, kind)
    assert hint in str(scene.manager.error)
    assert scene.asked() is None


@pytest.mark.parametrize("code", [14, 15, 16, 51, 7, -1])
def test_coordinator_that_is_not_ready_is_asked_again_after_a_pause(code: int) -> None:
    """Never by the user."""
    scene = Scene()
    scene.manager.initialize()

    scene.do("InitProducerId", code)

    assert scene.asked() is None
    assert scene.is_in(State.INITIALIZING)
    scene.pass_time(0.2)
    scene.do("InitProducerId")
    assert scene.is_in(State.READY)


def test_pauses_grow_with_every_failure_and_start_anew_after_a_success() -> None:
    """Also across looking the coordinator up again, which succeeds each time."""
    scene = Scene()
    scene.manager.initialize()
    pauses = []
    for _ in range(6):
        scene.do("InitProducerId", 16)
        pauses.append(round(scene.manager.pacing.next_at - scene.now, 3))
        scene.pass_time(pauses[-1])
    scene.do("InitProducerId")

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize("code", [15, 16])
def test_coordinator_that_moved_is_looked_up_again(code: int) -> None:
    """A dead coordinator was cached for ever (aiokafka #1145, #1151)."""
    scene = Scene().ready()
    scene.begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    scene.answer(scene.ask(), code)
    scene.pass_time(1)

    assert scene.asked() == "FindCoordinator"


def test_coordinator_that_does_not_answer_is_looked_up_again() -> None:
    """It may have died, and another one taken over."""
    scene = Scene().ready()
    scene.begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    request = scene.ask()
    scene.manager.unanswered(request, LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)

    assert scene.asked() == "FindCoordinator"


def test_coordinator_too_old_is_the_end() -> None:
    """Nothing it is asked would be understood."""
    scene = Scene()
    scene.manager.initialize()
    request = scene.ask()

    scene.manager.refused(UnsupportedVersionError("too old"))

    assert request.api.name == "InitProducerId"
    assert (scene.manager.state, str(scene.manager.error)) == (State.FATAL_ERROR, "too old")


# Transactions V2


def test_v2_asks_nothing_but_the_end() -> None:
    """Produce adds the partitions; EndTxn answers the next identity, and all sequences begin at 0 again."""
    scene = Scene().begun(0, 1)
    assert scene.asked() is None

    scene.manager.commit()
    assert scene.asked() is None  # batches are on their way
    scene.manager.flushed()
    scene.do("EndTxn")

    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)
    assert scene.asked() is None


def test_v2_partition_may_be_sent_to_at_once() -> None:
    """And begins at 0 in each transaction."""
    scene = Scene().ready()
    queue = scene.queue()
    stamps = []
    for _ in range(2):
        assert scene.manager.begin(2)
        assert not queue.identity.can_stamp
        assert scene.manager.use(queue)
        stamps.append(queue.identity.stamp(3))
        scene.manager.commit()
        scene.manager.flushed()
        scene.do("EndTxn")

    assert [tuple(stamp) for stamp in stamps] == [(77, 0, 0, True), (77, 1, 0, True)]


def test_v2_offsets_go_to_the_groups_coordinator_at_once() -> None:
    """TxnOffsetCommit adds the group itself."""
    scene = Scene().begun()
    offsets = OffsetsToSend(OFFSETS, READERS, is_added=True)

    scene.manager.send_offsets(offsets)
    request = scene.do("TxnOffsetCommit")

    assert offsets.is_done
    assert (request.coordinator.key, request.at_most) == ("readers", None)


# Transactions V1


def test_v1_partition_waits_until_the_coordinator_knows_of_it() -> None:
    """And those that are added together are asked for together."""
    scene = Scene(version=0).ready()
    assert scene.manager.begin(0)
    queues = [scene.queue(number) for number in range(3)]
    for queue in queues:
        assert not scene.manager.use(queue)

    request = scene.ask()
    assert (request.api.name, scene.joined) == ("AddPartitionsToTxn", [])
    assert not any(queue.identity.can_stamp for queue in queues)
    scene.answer(request)

    assert scene.joined == queues
    assert all(queue.identity.can_stamp for queue in queues)


def test_v1_partition_that_comes_later_does_not_stop_those_added_before() -> None:
    """A failed addition once un-marked them (franz-go)."""
    scene = Scene(version=0).ready()
    assert scene.manager.begin(0)
    first, second = scene.queue(0), scene.queue(1)
    scene.manager.use(first)
    scene.do("AddPartitionsToTxn")
    scene.manager.use(second)

    scene.do("AddPartitionsToTxn", 51)

    assert (first.identity.can_stamp, second.identity.can_stamp) == (True, False)
    scene.manager.abort()
    scene.manager.flushed()
    scene.pass_time(1)
    scene.do("EndTxn")
    assert scene.is_in(State.READY)


def test_v1_sequences_go_on_from_transaction_to_transaction() -> None:
    """The epoch is the same, and the broker remembers."""
    scene = Scene(version=0).ready()
    queue = scene.queue()
    stamps = []
    for _ in range(2):
        assert scene.manager.begin(0)
        scene.manager.use(queue)
        scene.do("AddPartitionsToTxn")
        stamps.append(queue.identity.stamp(3))
        scene.manager.commit()
        scene.manager.flushed()
        scene.do("EndTxn")

    assert [tuple(stamp) for stamp in stamps] == [(77, 0, 0, True), (77, 0, 3, True)]


def test_v1_group_is_added_before_its_offsets() -> None:
    """By the coordinator of the transaction, then by that of the group; neither in a version that means V2."""
    scene = Scene(version=0).begun()
    offsets = OffsetsToSend(OFFSETS, READERS, is_added=False)
    scene.manager.send_offsets(offsets)

    adding = scene.do("AddOffsetsToTxn")
    assert not offsets.is_done
    committing = scene.do("TxnOffsetCommit")
    scene.manager.commit()
    scene.manager.flushed()
    ending = scene.do("EndTxn")

    assert offsets.is_done
    assert [request.coordinator.key for request in (adding, committing)] == ["billing-1", "readers"]
    assert [request.at_most for request in (committing, ending)] == [4, 4]


# The end


@on_both()
def test_transaction_of_which_the_coordinator_never_heard_ends_without_it(version: int) -> None:
    """Nothing was sent; nothing is asked."""
    for verb in ("commit", "abort"):
        scene = Scene(version=version).begun()
        getattr(scene.manager, verb)()
        scene.manager.flushed()

        assert (scene.asked(), scene.manager.state) == (None, State.READY)


@on_both()
def test_end_waits_for_offsets_that_were_sent_before(version: int) -> None:
    """EndTxn was once taken out of line ahead of them (KAFKA-5449)."""
    scene = Scene(version=version).begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS, is_added=version >= 2))
    scene.manager.commit()
    scene.manager.flushed()

    if version < 2:
        scene.do("AddOffsetsToTxn")
    scene.do("TxnOffsetCommit")
    scene.do("EndTxn")

    assert scene.is_in(State.READY)


@on_both()
@pytest.mark.parametrize("code", [-1, 7, 14, 15, 16, 51])
def test_end_that_is_not_answered_with_success_is_asked_again_and_never_taken_for_done(version: int, code: int) -> None:
    """After UNKNOWN_SERVER_ERROR a retry that did nothing returned "committed" (franz-go)."""
    scene = Scene(version=version).begun(0)
    scene.manager.commit()
    scene.manager.flushed()

    scene.do("EndTxn", code)
    assert scene.is_in(State.COMMITTING)
    scene.pass_time(1)
    scene.do("EndTxn")

    assert scene.manager.state is (State.INITIALIZING if version < 2 and code == -1 else State.READY)


@on_both()
@pytest.mark.parametrize("code", [90, 53])
def test_end_that_is_refused_for_good_is_told(version: int, code: int) -> None:
    """Fenced at commit: it seemed fine (librdkafka before 1.6)."""
    scene = Scene(version=version).begun(0)
    scene.manager.commit()
    scene.manager.flushed()

    scene.do("EndTxn", code)

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, (ProducerFencedError, TransactionalIdAuthorizationError))


def test_v2_transaction_that_timed_out_is_aborted_under_its_own_epoch() -> None:
    """EndTxn(commit) gets 48; EndTxn(abort) with the same epoch gets the next one."""
    scene = Scene().begun(0)
    scene.manager.commit()
    scene.manager.flushed()

    scene.do("EndTxn", 48)
    assert scene.is_in(State.ABORTABLE_ERROR)
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")

    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_v1_transaction_that_timed_out_is_fatal_after_one_guarded_try(verb: str) -> None:
    """47, then InitProducerId with the identity, which gets 90; never one without, which would fence a successor."""
    scene = Scene(version=0).begun(0)
    getattr(scene.manager, verb)()
    scene.manager.flushed()

    scene.do("EndTxn", 47)
    if verb == "commit":
        assert scene.is_in(State.ABORTABLE_ERROR)
        scene.manager.abort()
        scene.manager.flushed()
    guarded = scene.ask()
    assert not scene.manager.has_ended
    scene.answer(guarded, 90)

    assert guarded.api.name == "InitProducerId"
    assert guarded.subject == ("billing-1", 77, 0)
    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, ProducerFencedError)


def test_v1_coordinator_that_knew_of_the_transaction_and_finds_it_closed_is_fatal() -> None:
    """Something else has ended it: neither "committed" nor "aborted" may be said."""
    for verb in ("commit", "abort"):
        scene = Scene(version=0).begun(0)
        getattr(scene.manager, verb)()
        scene.manager.flushed()

        scene.do("EndTxn", 48)

        assert scene.is_in(State.FATAL_ERROR)


def test_v1_abort_of_what_the_coordinator_may_never_have_heard_of_takes_its_word() -> None:
    """The addition went unanswered, and 48 says that nothing is open: a new epoch, and on."""
    scene = Scene(version=0).ready()
    assert scene.manager.begin(0)
    scene.manager.use(scene.queue())
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.manager.abort()
    scene.manager.flushed()
    scene.pass_time(1)

    scene.do("EndTxn", 48)
    scene.do("InitProducerId")

    assert scene.is_in(State.READY)


@on_both()
@pytest.mark.parametrize("code", [49, 59])
def test_identity_that_expired_is_renewed_instead_of_ended(version: int, code: int) -> None:
    """The coordinator takes no EndTxn for it; InitProducerId with the identity gives another."""
    scene = Scene(version=version).begun(0)
    scene.manager.commit()
    scene.manager.flushed()

    scene.do("EndTxn", code)
    assert scene.is_in(State.ABORTABLE_ERROR)
    scene.manager.abort()
    scene.manager.flushed()
    guarded = scene.do("InitProducerId")

    assert guarded.subject == ("billing-1", 77, 0)
    assert (scene.manager.state, scene.manager.has_ended) == (State.READY, True)


# Strays and gaps


def test_v1_gap_takes_a_new_epoch_before_the_next_transaction() -> None:
    """A sequenced batch did not end acknowledged: later ones would get 45, or a late copy would be committed."""
    scene = Scene(version=0).ready()
    queue = scene.queue()
    assert scene.manager.begin(0)
    scene.manager.use(queue)
    scene.do("AddPartitionsToTxn")
    queue.identity.stamp(3)
    queue.identity.begin_change()
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")

    guarded = scene.do("InitProducerId")
    assert scene.manager.begin(0)
    scene.manager.use(queue)
    scene.do("AddPartitionsToTxn")

    assert guarded.subject == ("billing-1", 77, 0)
    assert tuple(queue.identity.stamp(1)) == (77, 1, 0, True)


@pytest.mark.parametrize("name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_v1_unanswered_request_takes_a_new_epoch_before_the_next_transaction(name: str) -> None:
    """A copy that was delayed on its way would speak for the next one: a stray EndTxn committed it."""
    scene = Scene(version=0).ready()
    assert scene.manager.begin(0)
    scene.manager.use(scene.queue())
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS, is_added=False))
    for step in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"):
        if step == "EndTxn":
            scene.manager.commit()
            scene.manager.flushed()
        if step == name:
            scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
            scene.pass_time(1)
        scene.do(step)

    assert scene.is_in(State.INITIALIZING)
    scene.do("InitProducerId")
    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)


@pytest.mark.parametrize("was_sent", [True, False])
def test_v1_request_that_never_left_leaves_no_copy(was_sent: bool) -> None:  # noqa: FBT001
    """Only what was handed to a connection can arrive late."""
    scene = Scene(version=0).begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    request = scene.ask()
    scene.manager.unanswered(request, LOST, was_sent=was_sent, now=scene.now)
    scene.pass_time(1)
    scene.do("EndTxn")

    assert scene.manager.state is (State.INITIALIZING if was_sent else State.READY)


def test_v2_unanswered_end_needs_no_other_epoch_than_its_own() -> None:
    """A copy of it is of an older epoch."""
    scene = Scene().begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)
    scene.do("EndTxn")

    assert scene.is_in(State.READY)


def test_unanswered_renewal_delays_the_next_transaction() -> None:
    """A copy of InitProducerId that arrived in it would abort it and fence us."""
    scene = Scene(version=0).begun(0)
    scene.identity.has_gap = True
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")
    scene.manager.unanswered(scene.ask(), LOST, was_sent=True, now=scene.now)
    scene.pass_time(1)
    scene.do("InitProducerId")

    assert scene.manager.begin_at == scene.now + STRAY_DELAY_S


def test_upgrade_of_the_cluster_takes_a_new_epoch_first() -> None:
    """Sequences of V1 go on; those of V2 begin at 0."""
    scene = Scene(version=0).begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    scene.do("EndTxn")
    scene.version = 2

    assert not scene.manager.begin(2)
    guarded = scene.do("InitProducerId")
    assert scene.manager.begin(2)

    assert (guarded.subject, scene.manager.is_v2) == (("billing-1", 77, 0), True)


def test_downgrade_of_the_cluster_needs_nothing() -> None:
    """The epoch that V2 gave is fresh."""
    scene = Scene().begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    scene.do("EndTxn")
    scene.version = 0

    assert scene.manager.begin(0)
    assert not scene.manager.is_v2


@on_both()
def test_epochs_that_are_used_up_are_the_coordinators_business(version: int) -> None:
    """It answers another producer id, and sequences begin at 0 (KAFKA-18660, KAFKA-19367)."""
    scene = Scene(version=version).ready()
    scene.identity.assign(77, 32_767)
    queue = scene.queue()
    assert scene.manager.begin(version)
    scene.manager.use(queue)
    if version < 2:
        scene.do("AddPartitionsToTxn")
        scene.identity.has_gap = True
    first = queue.identity.stamp(2)
    scene.manager.commit()
    scene.manager.flushed()
    ending = scene.ask()
    if version < 2:
        scene.answer(ending)
        renewal = scene.ask()
        scene.manager.answered(renewal, ProducerIdAnswer(0, 0, 88, 0), scene.now)
    else:
        scene.manager.answered(ending, EndTxnAnswer(0, 0, 88, 0), scene.now)
    assert scene.manager.begin(version)
    scene.manager.use(queue)
    if version < 2:
        scene.do("AddPartitionsToTxn")

    assert tuple(first) == (77, 32_767, 0, True)
    assert tuple(queue.identity.stamp(1)) == (88, 0, 0, True)


# Failures


@on_both()
def test_record_that_failed_makes_the_transaction_one_to_be_aborted(version: int) -> None:
    """And it ends as any aborted one."""
    scene = Scene(version=version).begun(0)
    cause = KafkaError("not delivered")

    scene.manager.fail_transaction(cause)

    assert scene.is_in(State.ABORTABLE_ERROR)
    assert isinstance(scene.manager.error, TransactionAbortableError)
    assert scene.manager.error.__cause__ is cause
    scene.manager.abort()
    scene.manager.flushed()
    scene.do("EndTxn")
    assert scene.is_in(State.READY)


def test_record_that_fails_between_transactions_fails_none() -> None:
    """It belonged to the last one, which is over."""
    scene = Scene().ready()

    scene.manager.fail_transaction(KafkaError("late"))

    assert scene.is_in(State.READY)


@pytest.mark.parametrize(
    "code, kind", [(29, TopicAuthorizationError), (55, BrokerError), (48, BrokerError), (120, BrokerError)]
)
def test_v1_partition_that_is_refused_ends_the_transaction(code: int, kind: type[KafkaError]) -> None:
    """With the code's own error as the cause."""
    scene = Scene(version=0).ready()
    assert scene.manager.begin(0)
    scene.manager.use(scene.queue())

    scene.do("AddPartitionsToTxn", code)

    assert scene.is_in(State.ABORTABLE_ERROR)
    assert scene.manager.error is not None
    assert isinstance(scene.manager.error.__cause__, kind)


def test_v1_partition_that_was_not_tried_is_not_the_reason() -> None:
    """OPERATION_NOT_ATTEMPTED stands beside the code that is."""
    scene = Scene(version=0).ready()
    assert scene.manager.begin(0)
    scene.manager.use(scene.queue(0, "mine"))
    scene.manager.use(scene.queue(0, "secret"))
    request = scene.ask()
    results = [PartitionResult("mine", 0, 55), PartitionResult("secret", 0, 29)]

    scene.manager.answered(request, PartitionsAnswer(0, results), scene.now)

    assert scene.manager.error is not None
    assert isinstance(scene.manager.error.__cause__, TopicAuthorizationError)


def test_v1_partition_that_the_answer_left_out_was_not_added() -> None:
    """It is asked for again."""
    scene = Scene(version=0).ready()
    assert scene.manager.begin(0)
    queue = scene.queue()
    scene.manager.use(queue)

    scene.manager.answered(scene.ask(), PartitionsAnswer(0, []), scene.now)
    assert not queue.identity.can_stamp
    scene.pass_time(1)
    scene.do("AddPartitionsToTxn")

    assert queue.identity.can_stamp


@on_both()
@pytest.mark.parametrize("code", [22, 25, 30, 82, 113, 12])
def test_offsets_that_the_group_refuses_end_the_transaction(version: int, code: int) -> None:
    """It has rebalanced, or the member was replaced: read on from the committed offsets."""
    scene = Scene(version=version).begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS, is_added=True))

    scene.do("TxnOffsetCommit", code)

    assert scene.is_in(State.ABORTABLE_ERROR)
    assert scene.manager.error is not None
    cause = scene.manager.error.__cause__
    assert isinstance(cause, BrokerError)
    assert (cause.code, isinstance(cause, GroupAuthorizationError)) == (code, code == 30)


def test_group_that_may_not_be_looked_up_ends_the_transaction_alone() -> None:
    """Its coordinator is nobody else's business."""
    scene = Scene().begun()
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS, is_added=True))
    finding = scene.manager.next_request(scene.now)
    assert finding is not None

    scene.manager.answered(finding, CoordinatorAnswer(0, 30, -1, "", -1), scene.now)

    assert scene.is_in(State.ABORTABLE_ERROR)
    scene.manager.abort()
    scene.manager.flushed()
    assert (scene.asked(), scene.manager.state) == (None, State.READY)


def test_abort_is_possible_until_the_commit_has_gone_out() -> None:
    """From then on only its answer says what became of the transaction."""
    scene = Scene().begun(0)
    assert scene.manager.may_abort
    scene.manager.commit()
    assert scene.manager.may_abort
    scene.manager.flushed()
    scene.ask()

    assert not scene.manager.may_abort


def test_answer_that_comes_after_a_fatal_error_changes_nothing() -> None:
    """Whatever it says."""
    scene = Scene().begun(0)
    scene.manager.commit()
    scene.manager.flushed()
    request = scene.ask()
    scene.manager.fail(KafkaError("the end"))

    scene.answer(request)

    assert (scene.manager.state, str(scene.manager.error)) == (State.FATAL_ERROR, "the end")
