"""Settings of the pipeline's jobs, which find them in one environment variable."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Self

VARIABLE = "SPARK_PIPELINE"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one run; paths are absolute."""

    bootstrap_servers: str
    folder: str
    """Folder of the source files, the checkpoint and the report."""

    cores: int
    records_per_batch: int
    """Most records that the stream reads in a batch."""

    kill_at: str = "never"
    """`task`, `decision`, `round`: where this driver kills itself."""

    driver_group: int = 0
    """Process group of the driver and its JVM."""

    @classmethod
    def of_environment(cls) -> Self:
        """Return the settings of the process that started this one."""
        return cls(**json.loads(os.environ[VARIABLE]))

    def to_environment(self) -> None:
        """Leave the settings to the processes that this one starts: Java, and the workers of Spark."""
        os.environ[VARIABLE] = json.dumps(asdict(self))
