"""The log of a partition: record batches, producer state, what is committed."""
