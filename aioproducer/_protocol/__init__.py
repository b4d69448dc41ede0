"""Bytes to messages and back: frames, requests, answers, error codes, compression.

Everything here is sans-IO: bytes in, bytes or values out. No sockets, no event loop, no clock, no randomness.
All messages are encoded and decoded here; `messages.py` says why not by a library. Malformed input from a broker always
becomes a `ProtocolError`.
"""
