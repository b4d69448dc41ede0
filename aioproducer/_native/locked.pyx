# cython: language_level=3
"""A lock that Ctrl-C never leaves locked.

Ctrl-C ends a thread between any two steps of the interpreter. Since Python 3.14 there is such a step between the moment
when `with` takes a lock and its body: the lock would stay locked, and the next thread would wait forever. C has none.
"""


def locked(lock, function, *arguments):
    with lock:
        return function(*arguments)
