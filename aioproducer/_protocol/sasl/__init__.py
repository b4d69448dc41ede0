"""SASL without I/O: messages, mechanisms, and the exchange that authenticates a connection."""
