"""The brokers' side of SASL: who may log in, the mechanisms, and the session of each connection."""
