"""Description of a cell, in `cell.json` and `events.jsonl`: all that the checker knows beside histories and logs.

CELL/cell.json          topics, clients and limits
CELL/events.jsonl       a line for each fault (`losses.Event`), and for each move of leaders
CELL/history-*.bin      histories (`history_file`)
CELL/end-*.json         what each producer process says at its end: closes, errors logged
CELL/log-*.bin          dumps (`log_dump`)
CELL/events-*.log       for people: what the producers logged
"""

import json
from pathlib import Path
from typing import TypedDict

from tests.programs.chaos.checker.losses import Event


class Topic(TypedDict):
    name: str
    idempotent: bool  # whether its records are sent with idempotence and acks=all, or else with acks=1


class Limits(TypedDict):
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int


class Cell(TypedDict):
    """The content of `cell.json`."""

    seed: int
    topics: dict[str, Topic]
    limits: Limits
    lasting_clients: list[int]
    sending_ended_us: int


class Close(TypedDict):
    client: int
    seconds: float
    timeout_s: float
    began_us: int


class End(TypedDict):
    clients: list[int]
    closes: list[Close]
    errors: list[str]  # messages that the process logged at ERROR, each with its cause
    errors_without_cause: list[str]
    failed_starts: int
    lags: list[tuple[int, int]]
    """Times when the process did not run, in microseconds: the machine was busy, or it was stopped."""


def load_cell(folder: Path) -> Cell:
    cell: Cell = json.loads((folder / "cell.json").read_text("utf-8"))
    return cell


def load_events(folder: Path) -> list[Event]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]


def load_ends(folder: Path) -> dict[str, End]:
    return {file.stem.removeprefix("end-"): json.loads(file.read_text("utf-8")) for file in folder.glob("end-*.json")}
