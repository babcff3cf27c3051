"""Known faults of writers, recognized by ``created_by`` and the schema of a file."""

from __future__ import annotations

import pyarrow as pa

from intarsia.expr.nested_types import has_dictionary
from intarsia.file.file_footer import FileFooter
from intarsia.parquet.metadata import FieldRepetitionType, Type


def miscounts_nulls(footer: FileFooter, leaf: int) -> bool:
    """True if the NULL counts of statistics and page indexes may be too small.

    Arrow's writer does not count NULL structs for their string or binary fields that were
    dictionaries. Its histograms of levels are right. Without a stored Arrow schema, any such field
    may have been a dictionary.
    """
    column = footer.schema.leaves[leaf]
    is_arrows = (footer.metadata.created_by or "").startswith("parquet-cpp")
    if not is_arrows or len(column.path) == 1 or column.element.type != Type.BYTE_ARRAY:
        return False
    is_required = column.element.repetition_type == FieldRepetitionType.REQUIRED
    if column.max_definition_level == (0 if is_required else 1):
        return False  # nothing above it may be NULL
    if not footer.templates.has_stored_schema:
        return True
    kind = footer.arrow_type(footer.schema.roots[column.root])
    for name in column.path[1:]:
        at = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if at < 0:  # in a list, or not the only one of its name
            break
        kind = kind.field(at).type
    return has_dictionary(kind)
