"""What writers are known to get wrong, by what their files say of themselves."""

from __future__ import annotations

import pyarrow as pa

from intarsia.expr.nested_types import has_dictionary
from intarsia.file.file_footer import FileFooter
from intarsia.parquet.metadata import FieldRepetitionType, Type


def miscounts_nulls(footer: FileFooter, leaf: int) -> bool:
    """May counts of NULL, in statistics and page indexes, be too small?

    Arrow's writer leaves NULL structs out of the counts of their dictionaries of texts or bytes,
    not out of its histograms of levels. Where no Arrow schema is stored, nothing tells which
    columns were dictionaries.
    """
    known = footer.schema.leaves[leaf]
    is_arrows = (footer.metadata.created_by or "").startswith("parquet-cpp")
    if not is_arrows or len(known.path) == 1 or known.element.type != Type.BYTE_ARRAY:
        return False
    is_required = known.element.repetition_type == FieldRepetitionType.REQUIRED
    if known.max_definition_level == (0 if is_required else 1):
        return False  # nothing above it may be NULL
    if not footer.templates.has_stored_schema:
        return True
    kind = footer.arrow_type(footer.schema.roots[known.root])
    for name in known.path[1:]:
        at = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if at < 0:  # in a list, or not the only one of its name
            break
        kind = kind.field(at).type
    return has_dictionary(kind)
