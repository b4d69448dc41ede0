"""`aioproducer demo --transactions`: money goes from account to account while a worker and a broker are killed.

Orders to transfer money are the input. A worker, in a process of its own, writes for each order two entries to the
ledger, one minus and one plus, with the offsets of the orders in the same transaction. A reader of what is committed
adds the ledger up all the time.
"""
