"""The work per record, and the bytes of each batch: Cython modules, each with its types and docs in a `.pyi`.

`append` frames a record into the open batch of its partition, `delivery` is the handle its caller holds, `produce`
encodes a batch in its request, `frames` numbers requests and cuts responses, and `record_check` reads batches back for
the embedded broker. No configuration, no logging and no I/O lives here.
"""

from importlib.util import find_spec

if find_spec("aioproducer._native.delivery") is None:  # as where Python is started in a clone that was not built
    raise ImportError(
        "these are the sources of aioproducer, not built for this Python: run `pip install .` in their folder, then "
        f"start Python in another folder (they are in {__path__[0]})"
    )
