"""The demo, from Python: `python demo.py [--speed max] [--kafka 4.3.1]`, the same as `aioproducer demo`.

Streams 336,776 real flights to three brokers, kills one in the middle, reads every record back with aiokafka and
checks that nothing is missing, nothing is there twice, nothing was altered, and the order of each key was kept.
"""

import sys

from aioproducer.cli.main import app

if __name__ == "__main__":
    sys.argv[1:1] = ["demo"]
    app()
