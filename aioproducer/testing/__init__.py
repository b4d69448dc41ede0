"""What tests of code that sends to Kafka need: `FakeCluster`, in-process brokers over real TCP, with faults.

The brokers' logic is sans-IO (bytes in, bytes out, `now` given) and a thin TCP shell serves it.
"""
