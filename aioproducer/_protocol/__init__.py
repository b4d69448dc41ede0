"""Bytes to messages and back: frames, requests, answers, error codes, compression.

Everything here is sans-IO: bytes in, bytes or values out. No sockets, no event loop, no clock, no randomness.
Produce, the message of the hot path, is written by hand; the others come from the `kio` library, loaded when
first needed. Malformed input from a broker always becomes a `ProtocolError`.
"""
