"""Header of a record batch."""

from aioproducer._native.append cimport RecordBatchBuilder

cdef char* put_header(char* at, RecordBatchBuilder batch) except NULL
