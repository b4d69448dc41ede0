# cython: language_level=3
"""A lock that Ctrl-C never leaves locked.

Ctrl-C ends a thread between any two steps of the interpreter, and since Python 3.14 there is one between `with`'s
taking a lock and its body: the lock stays locked, and whoever wants it next waits for ever. C has no such steps.
"""


def locked(lock, function, *arguments):
    with lock:
        return function(*arguments)
