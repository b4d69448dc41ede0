"""What is left out when answers are compared: everything that the model does not do on purpose, and why.

Nothing else may differ. Each row takes away, on both sides, the one thing it names.
"""

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, cast

from aioproducer.testing.model.api_keys import ApiKey
from aioproducer.testing.model.version_profiles import VersionProfile
from tests.contracts.traces.message_codec import Tree
from tests.contracts.traces.steps import Step

Strip: TypeAlias = Callable[[Step, VersionProfile, Tree], None]


class Exclusion(NamedTuple):
    """One thing that is not compared."""

    api: str
    what: str
    why: str
    strip: Strip
    """Takes it out of an answer."""


def _other_topics(step: Step, _profile: VersionProfile, answer: Tree) -> None:
    body = step.get("body", {})
    if body.get("topics") is None or (step["v"] == 0 and not body["topics"]):
        answer["topics"] = [topic for topic in _list(answer, "topics") if str(topic["name"])[:1] == "$"]


def _features(_step: Step, _profile: VersionProfile, answer: Tree) -> None:
    for name in ("supported_features", "finalized_features", "finalized_features_epoch", "zk_migration_ready"):
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


_SET_BY_THE_BROKERS_FILE = {"min.insync.replicas", "segment.index.bytes"}


def _list(answer: Tree, name: str) -> list[Tree]:
    return cast("list[Tree]", answer.get(name) or [])


EXCLUSIONS: Sequence[Exclusion] = (
    Exclusion(
        "METADATA", "topics of others, when all are asked for", "the real broker serves other traces too", _other_topics
    ),
    Exclusion(
        "API_VERSIONS", "features", "what brokers agree on among themselves; clients act on none of it", _features
    ),
    Exclusion(
        "API_VERSIONS",
        "requests the model does not serve, and lowest versions below those it serves",
        "transactions, security and message formats 0 and 1 are not served",
        _other_apis,
    ),
    Exclusion(
        "CREATE_TOPICS",
        "where settings come from that the real broker's own file sets",
        "the model has no such file: it calls them defaults",
        _config_sources,
    ),
)


def without_exclusions(step: Step, profile: VersionProfile, answer: object) -> object:
    """An answer as it is compared and recorded; doing so again changes nothing."""
    excluded = [exclusion for exclusion in EXCLUSIONS if exclusion.api == step["api"]]
    if not excluded or not isinstance(answer, dict):
        return answer
    compared = copy.deepcopy(answer)
    for exclusion in excluded:
        exclusion.strip(step, profile, compared)
    return compared
