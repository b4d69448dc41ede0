"""Prints the steps: a line each, wrapped on a terminal, or a JSON object each."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Final

from aioproducer.cli.standard_streams import discard

if TYPE_CHECKING:
    from aioproducer.cli.diagnose.broker_check import Step

_LABEL: Final = 20  # characters before the text of a step
_NARROWEST: Final = _LABEL + 20
_UNBOUNDED: Final = 10_000


class Printed:
    """The steps that were printed, so that each broker gets one heading.

    Args:
        as_json: one object per line.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._broker = ""
        self._width = max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _UNBOUNDED

    def step(self, step: Step) -> None:
        if self._as_json:
            row = {
                "broker": step.broker,
                "step": step.name,
                "ok": step.is_ok,
                "text": step.text,
                "remedy": step.remedy or None,
                "took_s": round(step.took_s, 4),
            }
            self._line(json.dumps(row))
            return
        if step.broker != self._broker:
            self._broker = step.broker
            self._line(step.broker)
        state = ("ok" if not step.remedy else "look") if step.is_ok else "FAILED"
        self._wrapped(f"  {step.name:<10} {state:<6}", step.text)
        if step.remedy:
            self._wrapped(" " * (_LABEL - 3) + "->", step.remedy)

    def last(self, text: str) -> None:
        """Print the result of all steps."""
        if not self._as_json:
            self._wrapped("", text)

    def _wrapped(self, label: str, text: str) -> None:
        if not label:
            self._line("\n".join(textwrap.wrap(text, self._width)))
            return
        lines = textwrap.wrap(text, self._width - _LABEL, break_on_hyphens=False) or [""]
        self._line(f"{label:<{_LABEL}}{lines[0]}")
        for line in lines[1:]:
            self._line(" " * _LABEL + line)

    def _line(self, text: str) -> None:
        try:
            print(text, flush=True)
        except BrokenPipeError:  # as after `| head`
            discard(sys.stdout)
