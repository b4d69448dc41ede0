"""Exit codes other than 0."""

from typing import Final

EXIT_FAILED: Final = 1  # the command failed: a record was not delivered, no broker answered
EXIT_USAGE: Final = 2  # nothing was done: an invalid argument, a port in use, a missing program or extra
EXIT_SIGNAL: Final = 128  # plus the number of the signal, as in shells
EXIT_INTERRUPTED: Final = EXIT_SIGNAL + 2  # after Ctrl-C
EXIT_LOST: Final = 3  # a batch is decided, and rows of it are missing
EXIT_UNFINISHED: Final = 4  # a batch is decided, and some of its transactions are not committed yet
