"""DescribeGroups 0-6, ListGroups 0-5, DeleteGroups 0-2: consumer groups, for administrators.

A broker tells of the groups that it looks after. They are what `kafka-consumer-groups.sh` and the admin clients ask.
"""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.apis.find_coordinator import coordinator_error, place_error
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.groups.consumer_group import ConsumerGroup, GroupState
from aioproducer.testing.fake_broker.groups.group_members import Member
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.list_groups.v5.request import ListGroupsRequest

_STATES = {
    GroupState.EMPTY: "Empty",
    GroupState.PREPARING: "PreparingRebalance",
    GroupState.COMPLETING: "CompletingRebalance",
    GroupState.STABLE: "Stable",
}
"""By Kafka's names."""

_NO_GROUP = "Dead"
_TYPE = "classic"
_CLIENT_HOST = "/127.0.0.1"  # where all members are: the cluster listens on loopback only
_FIRST_NOT_FOUND = 6


def answer_describe_groups(exchange: Exchange) -> None:
    request = cast("DescribeGroupsRequest", exchange.request())
    described = [_described(exchange, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        everything = exchange.cluster.settings.profile.group_operations
        described = [
            {"authorized_operations": everything, **group} if group["error_code"] == 0 else group for group in described
        ]
    exchange.reply_tree({"groups": described}, exchange.now)


def _described(exchange: Exchange, group_id: str) -> Tree:
    error = coordinator_error(exchange, group_id)
    group = exchange.cluster.groups.existing().get(group_id)
    if error or group is None:
        return _undescribed(exchange, group_id, error)
    is_stable = group.state is GroupState.STABLE
    return {
        "error_code": 0,
        "group_id": group_id,
        "group_state": _STATES[group.state],
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name if is_stable else "",
        "members": [_member(group, member) for member in group.members],
    }


def _undescribed(exchange: Exchange, group_id: str, error: int) -> Tree:
    """A group that does not exist is in state Dead; since version 6 it is also an error."""
    if error:
        return {"error_code": error, "group_id": group_id}
    is_error = exchange.version >= _FIRST_NOT_FOUND
    return {
        "error_code": codes.GROUP_ID_NOT_FOUND if is_error else 0,
        "error_message": f"Group {group_id} not found." if is_error else None,
        "group_id": group_id,
        "group_state": _NO_GROUP,
    }


def _member(group: ConsumerGroup, member: Member) -> Tree:
    """A member; its subscription and assignment are shown only while the group is stable."""
    is_stable = group.state is GroupState.STABLE
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": _CLIENT_HOST,
        "member_metadata": member.protocols[group.protocol_name] if is_stable else b"",
        "member_assignment": member.assignment if is_stable else b"",
    }


def answer_list_groups(exchange: Exchange) -> None:
    """List the groups this broker coordinates that match the filters, ignoring case."""
    request = cast("ListGroupsRequest", exchange.request())
    error = exchange.injected_error()
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    listed: list[Tree] = [
        {
            "group_id": group_id,
            "protocol_type": group.protocol_type,
            "group_state": _STATES[group.state],
            "group_type": _TYPE,
        }
        for group_id, group in exchange.cluster.groups.existing().items()
        if not error
        and place_error(exchange, group_id, CoordinatorKind.GROUP) == 0
        and (not states or _STATES[group.state].lower() in states)
        and (not types or _TYPE in types)
    ]
    exchange.reply_tree({"error_code": error, "groups": listed}, exchange.now)


def answer_delete_groups(exchange: Exchange) -> None:
    request = cast("DeleteGroupsRequest", exchange.request())
    each_once = dict.fromkeys(request.groups_names)
    results = [{"group_id": group_id, "error_code": _delete(exchange, group_id)} for group_id in each_once]
    exchange.reply_tree({"results": results}, exchange.now)


def _delete(exchange: Exchange, group_id: str) -> int:
    groups = exchange.cluster.groups
    group = groups.existing().get(group_id)
    if error := coordinator_error(exchange, group_id):
        return error
    if group is None:
        return codes.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return codes.NON_EMPTY_GROUP
    groups.delete(group_id)
    return 0
