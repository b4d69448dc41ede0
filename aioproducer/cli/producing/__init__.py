"""What `aioproducer produce` is made of: inputs, lines, records, what became of them, and how that is told.

`feed` reads and sends; `run` is around it from start to end, with the signals; `tally` counts and `report` tells.
`formats`, `line_splitter`, `line_ranges` and `pace` do no I/O.
"""
