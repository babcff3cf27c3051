"""How new files are written: as the caller says and, for the rest, as the folder's policy says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.errors import UnsupportedError, unknown_column
from intarsia.index.index import Index
from intarsia.index.registry import IndexSpec
from intarsia.indexing.missing_indexes import choose
from intarsia.indexing.policy import Policy, policy_above
from intarsia.io.storage import PathLike, resolve
from intarsia.scan.request import without_rows
from intarsia.writer.empty_file import empty_file
from intarsia.writer.row_sorting import order_of, sorting_columns, stated_order


@dataclass(frozen=True, slots=True)
class NewFileSettings:
    """The settings of a new file. Without a policy they are those of the caller."""

    indexes: Sequence[Index | str] = ()
    sort_by: tuple[str, ...] = ()
    row_group_rows: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of ``ParquetWriter``: those of the caller, and others of the policy."""


def settings_of(
    filesystem: pafs.FileSystem,
    folder: str,
    schema: pa.Schema,
    indexes: Sequence[Index | str] | None,
    sort_by: Sequence[str] | None,
    options: Mapping[str, Any],
) -> NewFileSettings:
    """Returns the settings of new files of ``schema`` in ``folder``.

    The policy decides if ``indexes`` or ``sort_by`` is None, and on the codec and the length of
    pages unless ``options`` have them. Raises ``PredicateError`` for a column that does not exist.
    """
    for name in sort_by or ():
        if name not in schema.names:
            raise unknown_column(name, schema.names)
    policy = policy_above(filesystem, folder) or Policy()
    layout = policy.layout
    names = {"compression": "compression", "max_rows_per_page": "rows_per_page"}
    of_policy = {name: layout[own] for name, own in names.items() if own in layout}
    all_options = {**of_policy, **options}
    if indexes is None:
        indexes = indexes_of(policy, folder, schema, options)
    if sort_by is None:
        sort_by = () if "sorting_columns" in options else sortable_columns(policy.sort_by, schema)
    order = sorting_columns(stated_order(sort_by, schema), schema, nulls_first=False)
    if order:
        all_options["sorting_columns"] = order
    row_group_rows = int(layout.get("row_group_rows", 0)) or None
    return NewFileSettings(indexes, tuple(sort_by), row_group_rows, all_options)


def settings_at(where: PathLike, filesystem: Any, *args: Any) -> NewFileSettings:
    """Returns ``settings_of`` the folder of the file ``where``."""
    file_system, path = resolve(where, filesystem)
    return settings_of(file_system, path.rpartition("/")[0], *args)


def indexes_of(
    policy: Policy, name: str, schema: pa.Schema, options: Mapping[str, Any]
) -> list[IndexSpec]:
    """Returns the indexes of a policy that files of ``schema``, in a folder, can have."""
    if not policy.indexes:
        return []
    file = empty_file(schema, name, options)
    return list(choose(file, policy.specs, anew=True, in_sidecar=False).due)


def sortable_columns(names: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """Returns the leading ``names`` of columns that exist and that rows can be sorted by."""

    def is_sortable(name: str) -> bool:
        if name not in schema.names:
            return False
        try:
            order_of(without_rows(schema), [name])
        except UnsupportedError:
            return False
        return True

    return tuple(takewhile(is_sortable, dict.fromkeys(names)))
