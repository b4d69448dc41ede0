"""Environment variables of this package that are no options, although they have the prefix of the options.

`ProducerConfig.from_environment` leaves them out. Each variable that the package or its `setup.py` reads is named here.
"""

from __future__ import annotations

from typing import Final

OF_THE_BUILD: Final = frozenset(
    {"AIOPRODUCER_AS_BUILT", "AIOPRODUCER_CHECKED", "AIOPRODUCER_OPTIMISE", "AIOPRODUCER_SANITIZED"}
)
"""What says how native modules are compiled."""

OF_COMMANDS: Final = frozenset({"AIOPRODUCER_OUTBOX_URL"})
"""What commands read beside options."""

NO_OPTIONS: Final = OF_THE_BUILD | OF_COMMANDS
