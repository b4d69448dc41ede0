"""Transactions: their states, their requests to coordinators, and the tasks that wait for them.

`manager.py` decides which request is next and what a response means; `runner.py` sends it and wakes waiters. The
methods that users call are above, in `_producer/transaction.py`.
"""
