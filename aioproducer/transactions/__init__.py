"""Transactions, carried out: who begins, who ends, whose turn it is, and what is asked of the coordinators."""
