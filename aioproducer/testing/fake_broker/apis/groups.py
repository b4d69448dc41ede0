"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5: consumer groups of the classic protocol.

The arguments are checked before the coordinator: any broker refuses an empty group id and a session time-out out of
bounds.

Source: GroupCoordinatorService in Apache Kafka.
"""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.apis.find_coordinator import place_error
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.groups.consumer_group import ConsumerGroup, Identity, join_refused, synced
from aioproducer.testing.fake_broker.groups.group_members import Member
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.leave_group.v2.request import LeaveGroupRequest as LeaveOne
    from kio.schema.leave_group.v5.request import LeaveGroupRequest as LeaveMany
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
    member.join = lambda answer, now: _reply_to_join(exchange, answer, now)
    return member


def _offered(request: "JoinGroupRequest") -> dict[str, bytes]:
    return {protocol.name: protocol.metadata for protocol in request.protocols}


def _refuse_join(exchange: Exchange, error: int, member_id: str) -> None:
    _reply_to_join(exchange, join_refused(error, member_id), exchange.now)


def _reply_to_join(exchange: Exchange, answer: Tree, now: float) -> None:
    if exchange.version < _FIRST_JOIN_WITH_NO_NAME and answer["protocol_name"] is None:
        answer = {**answer, "protocol_name": ""}
    exchange.reply_tree(answer, now)


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
