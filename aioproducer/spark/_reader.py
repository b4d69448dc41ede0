"""The readers that Spark calls: a task reads a range of offsets of a partition.

The rows are those of Spark's own Kafka source: key, value, topic, partition, offset, timestamp, timestampType, and
headers where asked for. The offsets a stream keeps are that source's too. Ranges are fixed by the offsets, so a batch
that is run again has the same rows.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.spark._offsets import Offsets, chosen, from_json, limited, to_json
from aioproducer.spark._options import SourceOptions
from aioproducer.spark._range_reader import RangeReader, asked

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for Spark's."""


log = logging.getLogger("aioproducer.spark")


class KafkaReader(RangeReader, DataSourceReader):
    """Reads what topics have when the job begins."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each range of the read.

        Raises:
            ConfigurationError: the offsets name a partition that is not there.
        """
        earliest, latest = self.earliest_and_latest()
        try:
            start = chosen(self._options.starting_offsets, earliest, latest)
            end = chosen(self._options.ending_offsets, earliest, latest)
        except ValueError as error:
            raise ConfigurationError(f"startingOffsets or endingOffsets: {error}") from None
        return self.plan(start, end, earliest)


class KafkaStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream; the state of the driver's one lives as long as the query."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._last_end: Offsets | None = None
        self._stop_at: Offsets | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802  # Spark's name
        """Return where a new query begins.

        Raises:
            ConfigurationError: startingOffsets name a partition that is not there.
        """
        earliest, latest = self.earliest_and_latest()
        try:
            self._last_end = chosen(self._options.starting_offsets, earliest, latest)
            return to_json(self._last_end)
        except ValueError as error:
            raise ConfigurationError(f"startingOffsets: {error}", option="startingOffsets") from None

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: Mapping[str, Mapping[str, int]] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, dict[str, int]]:
        """Return where the next batch ends; before Spark 4.2 it is asked without arguments."""
        earliest, latest = self.earliest_and_latest()
        if self._stop_at is not None:
            latest = {place: min(offset, self._stop_at.get(place, 0)) for place, offset in latest.items()}
        begun = from_json(start) if start else self._last_end
        if begun is None:
            # Spark 4.0 after a restart: a limited end might lie before the start, which is not known here.
            return to_json(latest)
        self._check_not_before(begun, latest)
        begun = {place: min(begun.get(place, earliest[place]), latest[place]) for place in latest}
        return to_json(limited(begun, latest, self._rows_allowed(limit)))

    def _check_not_before(self, begun: Offsets, latest: Offsets) -> None:
        for (topic, number), offset in begun.items():
            end = latest.get((topic, number), offset)
            if end < offset and self._stop_at is None:
                self.note_loss(f"{topic}-{number} ends at offset {end}, and was read to {offset}")

    def _rows_allowed(self, limit: "ReadLimit | None") -> int | None:
        if limit is None:
            return self._options.max_offsets_per_trigger
        rows: int | None = getattr(limit, "max_rows", None)
        return rows

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802  # Spark's name
        """Return the limit that `maxOffsetsPerTrigger` sets."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: PLC0415  # Spark 4.2

        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802  # Spark's name
        """Return the latest offsets, for the query's progress."""
        return to_json(self.earliest_and_latest()[1])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Let the query end at the offsets that are the latest now."""
        self._stop_at = self.earliest_and_latest()[1]

    def partitions(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> Sequence[InputPartition]:
        """Return a partition for each range of a batch."""
        begun, ended = from_json(start), from_json(end)
        # Before Spark 4.2 a restart asks for an empty range. If it told the start, Trigger.AvailableNow, which asks
        # for its end once, would end after one limited batch.
        if begun != ended:
            self._last_end = ended
        earliest, _ = self.earliest_and_latest()
        return self.plan(begun, ended, earliest)

    def commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        """Commit the offsets of a finished batch to `offsetGroup`, for the tools that show lag.

        A failure is logged and stops nothing: Spark keeps the offsets that count.
        """
        if self._options.offset_group is None:
            return
        try:
            asked(self.commit_offsets(self._options.offset_group, from_json(end)))
        except KafkaError as error:
            log.warning("offsetGroup=%s: offsets were not committed: %s", self._options.offset_group, error)
