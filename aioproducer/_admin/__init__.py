"""Requests to a cluster beside the send path: transactions, coordinators, offsets of a group.

What the commands and the commit of Spark's batches ask for. `hanging` decides and does no I/O.
"""
