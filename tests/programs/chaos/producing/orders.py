"""Orders for a producer process: one JSON object, its only argument."""

import dataclasses
import json
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Orders:
    name: str  # name of the process; its files are FOLDER/history-NAME.bin and FOLDER/end-NAME.json
    workload: str  # "steady": one producer for all of the cell; "short": many short-lived ones
    folder: str
    bootstrap: str
    topic: str
    topic_number: int
    first_client: int  # number of the first producer object; others follow
    rate: float  # records a second ("steady"), or producers a second ("short")
    seed: str
    options: dict[str, Any]  # options of `Producer`
    client: str  # in `peers.CLIENTS`

    def dumps(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @property
    def history_file(self) -> Path:
        return Path(self.folder, f"history-{self.name}.bin")

    @property
    def end_file(self) -> Path:
        return Path(self.folder, f"end-{self.name}.json")


def loads(text: str) -> Orders:
    return Orders(**json.loads(text))
