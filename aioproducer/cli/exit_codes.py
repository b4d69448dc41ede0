"""What the commands end with, besides 0."""

from typing import Final

EXIT_FAILED: Final = 1
"""It was tried and did not come out: something was not delivered, nobody answered, a check did not hold."""

EXIT_USAGE: Final = 2
"""What the user can mend, and nothing was done: a bad argument, a busy port, a missing program or extra."""

EXIT_SIGNAL: Final = 128
"""Plus the number of the signal that ended it, as shells do it."""

EXIT_INTERRUPTED: Final = EXIT_SIGNAL + 2
"""After Ctrl-C."""
