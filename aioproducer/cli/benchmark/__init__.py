"""What `aioproducer bench` runs: this producer and its peers, measured one after another on one broker.

`scenarios/` has a file for each thing that is measured, `clients/` a file for each client that is: plain code, as its
own documentation would write it. A client's library is imported only in the worker process that measures it; the
process that orders the runs only starts workers, reads what they found and checks it against the broker.
"""
