"""Which versions of Kafka the embedded cluster can look like.

A profile says what ApiVersions lists and the few answers that differ between releases. What a release lists was
read from running brokers (3.9.1, 4.3.1) and, for the older ones, from the request schemas of their source.
Lower bounds below what anybody sends today (message formats 0 and 1) are left out, but for Produce of 4.x:
those brokers list versions 0-2 and refuse them (KAFKA-18659), and so does this one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aioproducer.testing.model.api_keys import ApiKey

_ORDER = tuple(ApiKey)

#       release: Produce Fetch ListOf Metad. OfCom. OfFet. FindC. Join  Heart Leave Sync  ApiV. CrTop DelTo InitP LeadE DesCo CrPar
_LISTED: dict[str, str] = {
    "4.3.1": "0-13   4-18  1-11   0-13   2-10   1-10   0-6    0-9   0-4   0-5   0-5   0-4   2-7   1-6   0-5   2-4   1-4   0-3",
    "3.9.1": "3-11   4-17  1-9    0-12   2-9    1-9    0-6    0-9   0-4   0-5   0-5   0-4   2-7   1-6   0-5   2-4   1-4   0-3",
    "2.8":   "3-9    4-12  1-6    0-11   2-8    1-7    0-3    0-7   0-4   0-4   0-5   0-3   2-7   1-6   0-4   2-4   1-4   0-3",
    "2.4":   "3-8    4-11  1-5    0-9    2-8    1-6    0-3    0-6   0-4   0-4   0-4   0-3   2-5   1-4   0-2   2-3   1-2   0-1",
    "2.1":   "3-7    4-10  1-4    0-7    2-6    1-5    0-2    0-3   0-2   0-2   0-2   0-2   2-3   1-3   0-1   2-2   1-2   0-1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class VersionProfile:
    """One release of Kafka, as far as clients can tell it from another."""

    name: str
    """The release, for example `4.3.1`."""

    versions: Mapping[ApiKey, tuple[int, int]]
    """What ApiVersions lists: lowest and highest version of each request."""

    lowest_produce: int = 3
    """Produce below this closes the connection, listed or not."""

    sequence_must_start_at_zero: bool = False
    """A producer id without state must begin with sequence 0, else 59; Kafka before 2.5 (KIP-360)."""

    auto_create_answer: int = 3
    """What Metadata says of a topic that it has just begun to create; 5 before Kafka 2.8."""

    def supports(self, api: ApiKey, version: int) -> bool:
        """Whether a request of this version is answered at all."""
        low, high = self.versions[api]
        if api is ApiKey.PRODUCE:
            low = max(low, self.lowest_produce)
        return low <= version <= high


def _parse(row: str) -> Mapping[ApiKey, tuple[int, int]]:
    ranges = [tuple(int(bound) for bound in cell.split("-")) for cell in row.split()]
    return MappingProxyType({api: (low, high) for api, (low, high) in zip(_ORDER, ranges, strict=True)})


PROFILES: Mapping[str, VersionProfile] = MappingProxyType(
    {
        "4.3.1": VersionProfile("4.3.1", _parse(_LISTED["4.3.1"])),
        "3.9.1": VersionProfile("3.9.1", _parse(_LISTED["3.9.1"])),
        "2.8": VersionProfile("2.8", _parse(_LISTED["2.8"])),
        "2.4": VersionProfile("2.4", _parse(_LISTED["2.4"]), sequence_must_start_at_zero=True, auto_create_answer=5),
        "2.1": VersionProfile("2.1", _parse(_LISTED["2.1"]), sequence_must_start_at_zero=True, auto_create_answer=5),
    }
)
"""By release. A newer one comes first."""


def profile_named(name: str) -> VersionProfile:
    """Return the profile of a release.

    Raises:
        ValueError: there is none; the text lists those there are.
    """
    if name not in PROFILES:
        raise ValueError(f"no profile of Kafka {name!r}; there are {', '.join(PROFILES)}")
    return PROFILES[name]
