"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5: consumer groups of the classic protocol."""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.model.apis.find_coordinator import coordinator_error
from aioproducer.testing.model.codes import INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID
from aioproducer.testing.model.consumer_group import Member
from aioproducer.testing.model.exchange import Exchange
from aioproducer.testing.model.messages import Tree

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.leave_group.v2.request import LeaveGroupRequest as LeaveOne
    from kio.schema.leave_group.v5.request import LeaveGroupRequest as LeaveMany
    from kio.schema.sync_group.v5.request import SyncGroupRequest

_FIRST_WITH_REQUIRED_ID = 4
_FIRST_LEAVE_FOR_MANY = 3


def answer_join_group(exchange: Exchange) -> None:
    """Take a consumer into its group; answered when all others have joined too."""
    request = cast("JoinGroupRequest", exchange.request())
    group = exchange.cluster.groups.named(request.group_id)
    offered = {protocol.name: protocol.metadata for protocol in request.protocols}
    if error := coordinator_error(exchange, request.group_id):
        _refuse_join(exchange, error, request.member_id)
    elif not request.member_id and request.group_instance_id is None and exchange.version >= _FIRST_WITH_REQUIRED_ID:
        group.exists = True
        _refuse_join(exchange, MEMBER_ID_REQUIRED, exchange.cluster.groups.new_member_id(exchange.header.client_id))
    elif request.member_id and not exchange.cluster.groups.has_named(request.member_id):
        _refuse_join(exchange, UNKNOWN_MEMBER_ID, request.member_id)
    elif not group.accepts(list(offered), request.protocol_type):
        _refuse_join(exchange, INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    else:
        group.protocol_type = request.protocol_type
        member_id = request.member_id or exchange.cluster.groups.new_member_id(exchange.header.client_id)
        member = Member(member_id, request.group_instance_id)
        member.client_id = exchange.header.client_id or ""
        member.session_timeout_s = request.session_timeout.total_seconds()
        member.rebalance_timeout_s = request.rebalance_timeout.total_seconds() or member.session_timeout_s
        member.protocols = offered
        group.join(member, exchange.reply_tree, exchange.now)


def _refuse_join(exchange: Exchange, error: int, member_id: str) -> None:
    refusal: Tree = {"error_code": error, "generation_id": -1, "protocol_name": "", "member_id": member_id}
    exchange.reply_tree(refusal, exchange.now)


def answer_sync_group(exchange: Exchange) -> None:
    """Take the leader's assignments and hand them out."""
    request = cast("SyncGroupRequest", exchange.request())
    group = exchange.cluster.groups.named(request.group_id)
    error = coordinator_error(exchange, request.group_id)
    error = error or group.member_error(request.member_id, request.generation_id)
    if error:
        exchange.reply_tree({"error_code": error, "assignment": b""}, exchange.now)
        return
    assignments = [(assigned.member_id, assigned.assignment) for assigned in request.assignments]
    group.sync(request.member_id, assignments, reply=exchange.reply_tree, now=exchange.now)


def answer_heartbeat(exchange: Exchange) -> None:
    """Keep a consumer's session alive."""
    request = cast("HeartbeatRequest", exchange.request())
    group = exchange.cluster.groups.named(request.group_id)
    error = coordinator_error(exchange, request.group_id)
    error = error or group.member_error(request.member_id, request.generation_id)
    error = error or group.heartbeat(request.member_id, exchange.now)
    exchange.reply_tree({"error_code": error}, exchange.now)


def answer_leave_group(exchange: Exchange) -> None:
    """Let one consumer go or, since version 3, several."""
    group_id, leaving = _leaving(exchange)
    group = exchange.cluster.groups.named(group_id)
    error = coordinator_error(exchange, group_id)
    if error:
        exchange.reply_tree({"error_code": error, "members": []}, exchange.now)
        return
    left: list[Tree] = []
    for member_id, instance_id in leaving:
        present = group.member_of_instance(instance_id) if instance_id is not None else member_id
        code = group.leave(present or member_id, exchange.now)
        left.append({"member_id": member_id, "group_instance_id": instance_id, "error_code": code})
    is_single = exchange.version < _FIRST_LEAVE_FOR_MANY
    exchange.reply_tree({"error_code": left[0]["error_code"] if is_single else 0, "members": left}, exchange.now)


def _leaving(exchange: Exchange) -> tuple[str, list[tuple[str, str | None]]]:
    """The group, and member id and instance id of each that leaves."""
    if exchange.version < _FIRST_LEAVE_FOR_MANY:
        one = cast("LeaveOne", exchange.request())
        return one.group_id, [(one.member_id, None)]
    many = cast("LeaveMany", exchange.request())
    return many.group_id, [(member.member_id, member.group_instance_id) for member in many.members]
