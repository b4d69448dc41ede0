"""What `aioproducer demo` is made of: the records, the cluster, the sending, the reading back, the check, the screen.

`show.py` is the story from beginning to verdict and knows all the others; they know each other only by values.
`delivery_check.py` decides and does no I/O. Nothing outside `cli/demo.py` imports from here.
"""
