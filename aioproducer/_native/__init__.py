"""What happens once a record, and nothing else: Cython modules, each with its types and docs in a `.pyi`.

`append` frames a record into the open batch of its partition, `delivery` is the handle its caller holds, and
`record_check` reads batches back for the embedded broker. No configuration, no logging and no I/O lives here.
"""
