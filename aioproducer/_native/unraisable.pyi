"""Reports an exception that no caller can be given."""

def report_unraisable(error: BaseException, source: object) -> None:
    """Call `sys.unraisablehook`, which prints the traceback to standard error unless the application set another.

    Args:
        error: the exception; whatever the hook raises is swallowed.
        source: what the exception came from; its repr is printed.
    """
