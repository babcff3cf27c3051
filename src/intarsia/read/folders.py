"""What the folders of a data set say: Hive's ``key=value``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

_NULL = "__HIVE_DEFAULT_PARTITION__"


def hive_partitioning(files: Sequence[str], base: str | None) -> Any:
    """Hive partitioning whose types pyarrow infers, text for keys that are NULL in every folder.

    pyarrow alone gives up on such a key. ``base`` is the folder that ``files`` lie below.
    """
    values: dict[str, set[str]] = {}
    for file in files:
        below = file.removeprefix(base or "")
        for part in below.split("/")[:-1]:
            key, is_pair, value = part.partition("=")
            if is_pair:
                values.setdefault(key, set()).add(value)
    if all(found != {_NULL} for found in values.values()):
        return "hive"
    fields = [pa.field(key, _inferred(found - {_NULL})) for key, found in values.items()]
    return pads.partitioning(pa.schema(fields), flavor="hive")


def _inferred(values: set[str]) -> pa.DataType:
    """As pyarrow infers it: 32-bit integers where all values are, else text."""
    try:
        pa.array(sorted(values)).cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int32() if values else pa.string()


def folder_constants(fragment: pads.Fragment, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """The columns of ``schema`` that a file's folder fixes, by name."""
    keys = pads.get_partition_keys(fragment.partition_expression)
    return {
        name: pa.scalar(value, schema.field(name).type)
        for name, value in keys.items()
        if name in schema.names
    }
