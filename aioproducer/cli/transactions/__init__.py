"""Words and tables of `aioproducer txn`."""
