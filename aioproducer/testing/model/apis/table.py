"""Which function answers which request."""

from collections.abc import Callable
from typing import TypeAlias

from aioproducer.testing.model.api_keys import ApiKey
from aioproducer.testing.model.apis.api_versions import answer_api_versions
from aioproducer.testing.model.apis.fetch import answer_fetch
from aioproducer.testing.model.apis.init_producer_id import answer_init_producer_id
from aioproducer.testing.model.apis.list_offsets import answer_list_offsets
from aioproducer.testing.model.apis.metadata import answer_metadata
from aioproducer.testing.model.apis.produce import answer_produce
from aioproducer.testing.model.exchange import Exchange

Answer: TypeAlias = Callable[[Exchange], None]

_ANSWERS: dict[ApiKey, Answer] = {
    ApiKey.PRODUCE: answer_produce,
    ApiKey.FETCH: answer_fetch,
    ApiKey.LIST_OFFSETS: answer_list_offsets,
    ApiKey.METADATA: answer_metadata,
    ApiKey.API_VERSIONS: answer_api_versions,
    ApiKey.INIT_PRODUCER_ID: answer_init_producer_id,
}


def answer_of(api: ApiKey) -> Answer:
    """The function that answers requests of this kind."""
    return _ANSWERS[api]
