"""A transaction that its producer has prepared: any process may complete it. Pickles name this module."""

from typing import NamedTuple


class PreparedTransaction(NamedTuple):
    """Names an open transaction whose records are all acknowledged; what `complete_transaction` needs to end it.

    The name is KIP-939's. Pickles, and fits a row of a table: text and three numbers.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    version: int
    """`transaction.version` of the cluster when it began: 1, or 2 for KIP-890, whose EndTxn must be of v5 or later."""
