"""Transactions, carried out: who begins, who ends, whose turn it is, and what is asked of the coordinators.

Nothing here decides what is asked, or what an answer means: that is `core/transaction_manager.py`. The verbs, and the
handle that users hold, are above (`transactional_verbs.py`, `transaction.py`).
"""
