"""What `aioproducer tail` is made of.

`reading` follows a topic with aiokafka's consumer, `record_text` makes a line of a record, `standard_output` prints
without blocking the loop and notices that nobody reads any more, `consumer_log` tells what went wrong below.
"""
