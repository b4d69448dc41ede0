"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5: consumer groups of the classic protocol.

For administrators DescribeGroups 0-6, ListGroups 0-5 and DeleteGroups 0-2: a broker tells of the groups it looks after.

The arguments are checked before the coordinator: any broker refuses an empty group id and a session time-out out of
bounds.

Source: GroupCoordinatorService in Apache Kafka.
"""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.apis.find_coordinator import coordinator_error, place_error
from aioproducer.testing.fake_broker.consumer_groups import (
    ConsumerGroup,
    GroupState,
    Identity,
    join_refused,
    synced,
)
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.group_members import Member
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.leave_group.v2.request import LeaveGroupRequest as LeaveOne
    from kio.schema.leave_group.v5.request import LeaveGroupRequest as LeaveMany
    from kio.schema.list_groups.v5.request import ListGroupsRequest
    from kio.schema.sync_group.v5.request import SyncGroupRequest

_FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
_FIRST_JOIN_WITH_REQUIRED_ID = 4
_FIRST_JOIN_WITH_NO_NAME = 7
_FIRST_JOIN_WITH_SKIPPING = 9
_FIRST_SYNC_WITH_PROTOCOL = 5
_FIRST_LEAVE_FOR_MANY = 3


def answer_join_group(exchange: Exchange) -> None:
    request = cast("JoinGroupRequest", exchange.request())
    groups = exchange.cluster.groups
    error = exchange.injected_error() or _join_request_error(exchange, request) or _place_error(exchange, request)
    makes_group = not error and not request.member_id
    group = groups.named(request.group_id) if makes_group else groups.found(request.group_id)
    if not error:
        who = Identity(request.member_id, request.group_instance_id)
        error = group.join_error(who, request.protocol_type, _offered(request))
    if error:
        _refuse_join(exchange, error, request.member_id)
    elif _must_come_again(exchange, request):
        _give_member_id(exchange, group, request)
    else:
        knows_skipping = exchange.version >= _FIRST_JOIN_WITH_SKIPPING
        member = _member(exchange, request)
        group.join(member, request.protocol_type, knows_skipping=knows_skipping, now=exchange.now)


def _join_request_error(exchange: Exchange, request: "JoinGroupRequest") -> int:
    settings = exchange.cluster.settings
    session_s = request.session_timeout.total_seconds()
    if not request.group_id:
        return codes.INVALID_GROUP_ID
    is_allowed = settings.group_min_session_timeout_s <= session_s <= settings.group_max_session_timeout_s
    return codes.NONE if is_allowed else codes.INVALID_SESSION_TIMEOUT


def _place_error(
    exchange: Exchange, request: "JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveOne | LeaveMany"
) -> int:
    """Return the error for a request without a group, or for a group that another broker coordinates."""
    if not request.group_id:
        return codes.INVALID_GROUP_ID
    return place_error(exchange, request.group_id, CoordinatorKind.GROUP)


def _must_come_again(exchange: Exchange, request: "JoinGroupRequest") -> bool:
    """Whether a member must first be given an id (KIP-394): a lost response then leaves no member behind."""
    is_new = not request.member_id and request.group_instance_id is None
    return is_new and exchange.version >= _FIRST_JOIN_WITH_REQUIRED_ID


def _give_member_id(exchange: Exchange, group: ConsumerGroup, request: "JoinGroupRequest") -> None:
    member_id = exchange.cluster.groups.new_member_id(exchange.header.client_id)
    group.expect(member_id, request.session_timeout.total_seconds(), exchange.now)
    _refuse_join(exchange, codes.MEMBER_ID_REQUIRED, member_id)


def _member(exchange: Exchange, request: "JoinGroupRequest") -> Member:
    instance_id = request.group_instance_id
    new_ids_begin = exchange.header.client_id if instance_id is None else instance_id
    member_id = request.member_id or exchange.cluster.groups.new_member_id(new_ids_begin)
    member = Member(member_id, instance_id, _offered(request), client_id=exchange.header.client_id or "")
    member.session_timeout_s = request.session_timeout.total_seconds()
    member.rebalance_timeout_s = max(0.0, request.rebalance_timeout.total_seconds())
    if exchange.version < _FIRST_JOIN_WITH_REBALANCE_TIMEOUT:
        member.rebalance_timeout_s = member.session_timeout_s
    member.join = lambda response, now: _reply_to_join(exchange, response, now)
    return member


def _offered(request: "JoinGroupRequest") -> dict[str, bytes]:
    return {protocol.name: protocol.metadata for protocol in request.protocols}


def _refuse_join(exchange: Exchange, error: int, member_id: str) -> None:
    _reply_to_join(exchange, join_refused(error, member_id), exchange.now)


def _reply_to_join(exchange: Exchange, response: Tree, now: float) -> None:
    if exchange.version < _FIRST_JOIN_WITH_NO_NAME and response["protocol_name"] is None:
        response = {**response, "protocol_name": ""}
    exchange.reply_tree(response, now)


def answer_sync_group(exchange: Exchange) -> None:
    request = cast("SyncGroupRequest", exchange.request())
    group = exchange.cluster.groups.found(request.group_id)
    error = exchange.injected_error() or _unnamed_protocol(exchange, request) or _place_error(exchange, request)
    error = error or group.member_error(_identity(request), request.generation_id)
    error = error or group.sync_error(request.protocol_type, request.protocol_name)
    if error:
        exchange.reply_tree(synced(error), exchange.now)
        return
    assignments = {assigned.member_id: assigned.assignment for assigned in request.assignments}
    group.sync(request.member_id, assignments, reply=exchange.reply_tree, now=exchange.now)


def _unnamed_protocol(exchange: Exchange, request: "SyncGroupRequest") -> int:
    """Return the error of a SyncGroup that must name the group's protocols and does not."""
    must_name = exchange.version >= _FIRST_SYNC_WITH_PROTOCOL
    return (
        codes.INCONSISTENT_GROUP_PROTOCOL
        if must_name and None in {request.protocol_type, request.protocol_name}
        else codes.NONE
    )


def _identity(request: "SyncGroupRequest | HeartbeatRequest") -> Identity:
    return Identity(request.member_id, request.group_instance_id)


def answer_heartbeat(exchange: Exchange) -> None:
    request = cast("HeartbeatRequest", exchange.request())
    group = exchange.cluster.groups.found(request.group_id)
    error = exchange.injected_error() or _place_error(exchange, request)
    error = error or group.member_error(_identity(request), request.generation_id)
    error = error or group.heartbeat(request.member_id, exchange.now)
    exchange.reply_tree({"error_code": error}, exchange.now)


def answer_leave_group(exchange: Exchange) -> None:
    request, leaving = _leaving(exchange)
    group = exchange.cluster.groups.found(request.group_id)
    error = exchange.injected_error() or _place_error(exchange, request)
    if error:
        exchange.reply_tree({"error_code": error, "members": []}, exchange.now)
        return
    errors = group.leave(leaving, exchange.now)
    left = [
        {"member_id": who.member_id, "group_instance_id": who.instance_id, "error_code": code}
        for who, code in zip(leaving, errors, strict=True)
    ]
    is_single = exchange.version < _FIRST_LEAVE_FOR_MANY
    exchange.reply_tree({"error_code": errors[0] if is_single else codes.NONE, "members": left}, exchange.now)


def _leaving(exchange: Exchange) -> "tuple[LeaveOne | LeaveMany, list[Identity]]":
    if exchange.version < _FIRST_LEAVE_FOR_MANY:
        one = cast("LeaveOne", exchange.request())
        return one, [Identity(one.member_id)]
    many = cast("LeaveMany", exchange.request())
    return many, [Identity(member.member_id, member.group_instance_id) for member in many.members]


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
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name if is_stable else "",
        "members": [_described_member(group, member) for member in group.members],
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


def _described_member(group: ConsumerGroup, member: Member) -> Tree:
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
            "group_state": group.state.value,
            "group_type": _TYPE,
        }
        for group_id, group in exchange.cluster.groups.existing().items()
        if not error
        and place_error(exchange, group_id, CoordinatorKind.GROUP) == 0
        and (not states or group.state.lower() in states)
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
