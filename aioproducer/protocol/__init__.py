"""Bytes to messages and back: conversations, handshakes, error codes, compression, the Produce request.

Sans-IO: bytes in, bytes out. The messages other than Produce come from `kio`, loaded when first needed.
"""
