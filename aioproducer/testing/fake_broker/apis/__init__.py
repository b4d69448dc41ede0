"""The APIs of a broker: one file per group of requests, and `table` with the function of each.

A function reads the request, uses the model, and replies through its `Exchange`, at once or later.
"""
