"""What a broker answers: one file a group of Kafka's requests, and `table` that finds the right one.

An answer reads the request, asks the model, and replies through its `Exchange`, at once or later.
"""
