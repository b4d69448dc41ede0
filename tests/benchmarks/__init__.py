"""The benchmark, `nox -s bench`: this producer and other clients, measured one after another on one broker.

`scenarios.py` says what is measured; `clients/` has a file for each client, with plain code as its own documentation
would write it. A client's library is imported only in the worker process that measures it. The main process starts
the workers, reads what they found and compares their counts with the broker's.
"""
