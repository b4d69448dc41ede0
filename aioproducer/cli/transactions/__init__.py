"""What `aioproducer txn` is made of: questions to coordinators and leaders, what hangs, and the words for it.

`hanging.py` decides and does no I/O. Nothing outside `cli/txn.py` imports from here.
"""
