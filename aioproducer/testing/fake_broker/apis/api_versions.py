"""ApiVersions 0-4: what this broker speaks, and the features its cluster has agreed on.

A version that is too new is answered in the shape of version 0 with error 35 and the versions of ApiVersions itself,
so that a client can ask again (KIP-511). The answer's header has no tagged fields in any version.
"""

import re
import struct
from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.api_versions.v4.request import ApiVersionsRequest

_FIRST_WITH_SOFTWARE_NAME = 3
_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer_api_versions(exchange: Exchange) -> None:
    profile, takes_metrics = exchange.cluster.settings.profile, exchange.cluster.client_metrics.subscription is not None
    if not profile.supports(ApiKey.API_VERSIONS, exchange.version):
        exchange.reply([_refusal(profile.versions[ApiKey.API_VERSIONS])], exchange.now)
        return
    error = exchange.injected_error() or _software_error(exchange)
    tree: Tree = {
        "error_code": error,
        "api_keys": () if error else profile.listed_apis(takes_metrics=takes_metrics),
        **({} if error else exchange.cluster.features.tree(exchange.version)),
    }
    if not error and exchange.session is not None:
        exchange.session.versions_answered()
    exchange.reply_tree(tree, exchange.now)


def _refusal(own: tuple[int, int]) -> bytes:
    return struct.pack(">hihhh", codes.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, *own)


def _software_error(exchange: Exchange) -> int:
    request = cast("ApiVersionsRequest", exchange.request())
    if exchange.version < _FIRST_WITH_SOFTWARE_NAME:
        return 0
    names = (request.client_software_name, request.client_software_version)
    return 0 if all(_LEGAL_SOFTWARE.fullmatch(name) for name in names) else codes.INVALID_REQUEST
