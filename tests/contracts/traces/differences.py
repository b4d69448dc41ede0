"""The differences of two responses, field by field, without what the model does not do on purpose."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, cast

from aioproducer.testing.fake_broker.version_profiles import VersionProfile
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from tests.contracts.traces.message_codec import Tree
from tests.contracts.traces.steps import Step

ABSENT = "(not there)"


class Difference(NamedTuple):
    step: int
    request: Step
    field: str
    real: object
    model: object

    def __str__(self) -> str:
        return f"step {self.step} {self.request}\n  {self.field}: real {self.real!r}, model {self.model!r}"


def differences(
    steps: Sequence[Step], profile: VersionProfile, *, real: Sequence[object], model: Sequence[object]
) -> list[Difference]:
    found = []
    for number, (step, *both) in enumerate(zip(steps, real, model, strict=True)):
        compared = [without_exclusions(step, profile, answer) for answer in both]
        found += [Difference(number, step, *field) for field in _fields(*compared, path="answer")]
    return found


def _fields(real: object, model: object, *, path: str) -> Iterator[tuple[str, object, object]]:
    if isinstance(real, dict) and isinstance(model, dict):
        for name in sorted({*real, *model}):
            yield from _fields(real.get(name, ABSENT), model.get(name, ABSENT), path=f"{path}.{name}")
    elif isinstance(real, list) and isinstance(model, list) and len(real) == len(model):
        for index, items in enumerate(zip(real, model, strict=True)):
            yield from _fields(*items, path=f"{path}[{index}]")
    elif real != model:
        yield path, real, model


# Exclusions, each with its reason. Nothing else may differ: a row takes away, on both sides, the one thing it names


Strip: TypeAlias = Callable[[Step, VersionProfile, Tree], None]


class Exclusion(NamedTuple):
    api: str
    what: str
    why: str
    strip: Strip  # takes it out of an answer


def _other_topics(step: Step, _profile: VersionProfile, answer: Tree) -> None:
    body = step.get("body", {})
    if body.get("topics") is None or (step["v"] == 0 and not body["topics"]):
        answer["topics"] = [topic for topic in _list(answer, "topics") if str(topic["name"])[:1] == "$"]


def _features(_step: Step, _profile: VersionProfile, answer: Tree) -> None:
    for name in ("supported_features", "finalized_features"):
        if name in answer:
            answer[name] = [feature for feature in _list(answer, name) if feature["name"] in _FEATURES]
    for name in ("finalized_features_epoch", "zk_migration_ready"):
        answer.pop(name, None)


def _other_apis(_step: Step, profile: VersionProfile, answer: Tree) -> None:
    listed = [row for row in _list(answer, "api_keys") if row["api_key"] in set(ApiKey)]
    for row in listed:
        low, _ = profile.versions[ApiKey(cast("int", row["api_key"]))]
        row["min_version"] = max(low, cast("int", row["min_version"]))
    answer["api_keys"] = listed


def _config_sources(_step: Step, _profile: VersionProfile, answer: Tree) -> None:
    for topic in _list(answer, "topics"):
        for config in _list(topic, "configs"):
            if config["name"] in _SET_BY_THE_BROKERS_FILE:
                config.pop("config_source", None)


def _ids_of_no_topic(step: Step, _profile: VersionProfile, answer: Tree) -> None:
    for topic in _list(answer, "topics") if step.get("body", {}).get("validate_only") else []:
        topic.pop("topic_id", None)


def _highest_append_time(step: Step, _profile: VersionProfile, answer: Tree) -> None:
    for topic in _list(answer, "topics"):
        for partition in _list(topic, "partitions"):
            if partition.get("timestamp") == "append" and "-3" in str(step.get("body")):
                partition.pop("offset", None)


_FEATURES = {"metadata.version", "transaction.version"}
_SET_BY_THE_BROKERS_FILE = {"min.insync.replicas", "segment.index.bytes"}


def _list(answer: Tree, name: str) -> list[Tree]:
    return cast("list[Tree]", answer.get(name) or [])


EXCLUSIONS: Sequence[Exclusion] = (
    Exclusion(
        "METADATA", "topics of others, when all are asked for", "the real broker serves other traces too", _other_topics
    ),
    Exclusion(
        "API_VERSIONS",
        "features but metadata.version and transaction.version, and the epoch of all",
        "share groups, streams groups and elections are not served; the epoch is an offset of the controllers' log",
        _features,
    ),
    Exclusion(
        "API_VERSIONS",
        "requests the model does not serve, and lowest versions below those it serves",
        "security and message formats 0 and 1 are not served",
        _other_apis,
    ),
    Exclusion(
        "CREATE_TOPICS",
        "where settings come from that the real broker's own file sets",
        "the model has no such file: it calls them defaults",
        _config_sources,
    ),
    Exclusion(
        "LIST_OFFSETS",
        "the offset of the highest time, where the broker writes the times",
        "which of several appends is the first of the last millisecond is for the real clock to say",
        _highest_append_time,
    ),
    Exclusion("CREATE_TOPICS", "ids of topics that are not made", "drawn at random and thrown away", _ids_of_no_topic),
)


# Not sent in any trace:
# - the time while a transaction is completing: the player waits until it is complete
# - transactions that are open for too long, epochs used up: they have stories of their own in `contracts/`
# - Produce 0-2, Fetch 0-3 and the like on 3.9.1: message formats 0 and 1 are not served
# - Fetch sessions: the model declines them by session id 0, as brokers without room for more do
# - groups' own requests but for offsets: they have tests of their own, with real clients
# - DescribeConfigs: the model lists the settings that it knows, not a broker's hundreds
# - internal topics: the model has none
# - null records for a partition that exists: brokers never answer and hold the connection; so does the model
# - one partition twice in ListOffsets or DeleteRecords: releases answer differently, and no client does it
# - replica ids from 0 on: they are for brokers
# - flags other than 0 and 1: kio refuses them, Kafka takes them for true
# - settings of levels of compression and of ratios with values that are refused: the model keeps any text
# - more than 10,000 new partitions: a limit of the controller's batches
# - times within 40 s after the trace's start: they could not be told from those of appends
# - waiting for retention, compaction, expiry of producers: they come when the broker likes
# - more nodes than one: leaders, copies and ISR are in the model's own tests and in those on three nodes


def without_exclusions(step: Step, profile: VersionProfile, answer: object) -> object:
    """An answer as it is compared and recorded; doing so again changes nothing."""
    excluded = [exclusion for exclusion in EXCLUSIONS if exclusion.api == step["api"]]
    if not excluded or not isinstance(answer, dict):
        return answer
    compared = copy.deepcopy(answer)
    for exclusion in excluded:
        exclusion.strip(step, profile, compared)
    return compared
