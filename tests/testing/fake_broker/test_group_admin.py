"""Groups listed, described and deleted: what needs more than one broker, or a fault."""

from aioproducer.testing import ApiKey, Where
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind
from tests.testing.fake_broker.test_groups import Consumer
from tests.testing.fake_broker.test_offsets import commit, committed
from tests.testing.model_network import ModelNetwork

NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE = 16, 15


def with_group(network: ModelNetwork) -> tuple[int, int]:
    node_id = network.model.coordinators.node_of(CoordinatorKind.GROUP, "g", network.now)
    consumer = Consumer(network.client(node_id))
    consumer.join()
    consumer.join()
    return node_id, 3 - node_id


def test_only_its_coordinator_tells_of_a_group() -> None:
    network = ModelNetwork(2)
    told = []
    for node_id in with_group(network):
        client = network.client(node_id)
        (described,) = client.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=("g",)).groups
        listed = client.ask(ApiKey.LIST_GROUPS, 5).groups
        (deleted,) = client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("g",)).results
        told.append((int(described.error_code), described.group_state, len(listed), int(deleted.error_code)))

    assert told == [(0, "CompletingRebalance", 1, 68), (NOT_COORDINATOR, "", 0, NOT_COORDINATOR)]


def test_asking_for_a_group_makes_none() -> None:
    client = ModelNetwork().client()
    client.ask(ApiKey.DESCRIBE_GROUPS, 0, groups=("g",))
    client.ask(ApiKey.DELETE_GROUPS, 0, groups_names=("g",))

    assert client.ask(ApiKey.LIST_GROUPS, 0).groups == ()


def test_queries_create_no_group() -> None:
    """Requests for its members and offsets create no group either."""
    network = ModelNetwork()
    stranger = Consumer(network.client(), "stranger")
    errors = [stranger.join(), stranger.heartbeat(), stranger.leave()]
    errors.append(commit(stranger.client, 8, 7, generation=3))

    assert (errors, committed(stranger.client, 5)) == ([25, 25, 25, 22], [-1])
    assert not network.model.groups.existing()


def test_deleted_group_takes_its_ids_back() -> None:
    """No appointment is left for ids that were still pending."""
    network = ModelNetwork()
    pending = Consumer(network.client())
    pending.join()

    (deleted,) = pending.client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("g",)).results

    assert (int(deleted.error_code), network.model.next_wakeup(), pending.join()) == (0, None, 25)


def test_faults_reach_all_three() -> None:
    network = ModelNetwork()
    with_group(network)
    client = network.client()
    for api in (ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS):
        network.model.faults.error(COORDINATOR_NOT_AVAILABLE, Where(api=api))
    (described,) = client.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=("g",)).groups
    listed = client.ask(ApiKey.LIST_GROUPS, 5)
    (deleted,) = client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("g",)).results

    codes = [int(described.error_code), int(listed.error_code), int(deleted.error_code)]
    assert codes == [COORDINATOR_NOT_AVAILABLE] * 3
    assert listed.groups == ()
