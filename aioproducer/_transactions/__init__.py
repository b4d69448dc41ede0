"""Transactions, carried out: who begins, who ends, whose turn it is, and what is asked of the coordinators.

Nothing here decides what is asked, or what an answer means: that is `_transactions/manager.py`. The verbs, and the
handle that users hold, are above (`_producer/transaction.py`, `_producer/transaction.py`).
"""
