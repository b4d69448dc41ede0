"""Reports an exception without a caller."""

def report_unraisable(error: BaseException, source: object) -> None:
    """Call `sys.unraisablehook`, which prints the traceback to standard error unless the application set another.

    Args:
        error: the exception; an error of the hook is swallowed.
        source: its origin, whose repr is printed.
    """
