import pyarrow as pa

from intarsia.decode.splice import SchemaTemplates, splice
from intarsia.format.metadata import FileMetaData, SchemaElement
from intarsia.format.schema import read_schema
from intarsia.format.thrift import encode


def test_spliced_bytes_are_in_arrows_memory():
    """A thread of Arrow's that frees Python's, as the interpreter exits, ends the process."""
    elements = [
        SchemaElement(name="root", num_children=1),
        SchemaElement(name="n", type=1, repetition_type=0),
    ]
    footer = FileMetaData(version=1, schema=elements, num_rows=0, row_groups=[])
    template = SchemaTemplates(footer, encode(footer)).logical(read_schema(elements).roots[0])
    before = pa.total_allocated_bytes()
    spliced = splice(template, [])
    assert pa.total_allocated_bytes() - before >= spliced.size > 0
