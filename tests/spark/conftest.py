"""Tests of the data source.

Those in the folders below start Spark, and need `nox -s spark`: the environment of the other tests has no pyspark, and
collects only the files here, which need none.
"""

from importlib.util import find_spec

collect_ignore = [] if find_spec("pyspark") else ["functions", "crashes"]
