"""Sockets: connections to brokers, the client that owns them, and the refresher of metadata.

The only layer that opens a socket. What the bytes mean is `protocol`'s, what to send is `core`'s and the sender's.
"""
