"""Sockets: one connection a broker, who is ready to be sent to, and what is known about the cluster.

The only folder that holds transports. It reads time from the event loop, takes its timers and randomness from
outside, and hands every answer to the callback that came with its request, in order. It decides nothing about
records: what an answer means is `_sender/produce_outcome.py`.
"""
