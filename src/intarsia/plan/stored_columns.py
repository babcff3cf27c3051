"""Whether a file's statistics and indexes are valid for a filter on columns of the data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from intarsia.errors import FormatError, Where
from intarsia.expr.comparison_operators import Op
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.schema import Leaf
from intarsia.parquet.statistics import BoolArray, Bounds
from intarsia.parquet.value_order import Key
from intarsia.pruning.bounds_comparison import rows_might_match, types_agree_at
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicates import Comparison, Predicate
from intarsia.pruning.term import Term, field_term


def leaf_of(
    file: OpenedFile, test: Predicate, constants: Constants, schema: pa.Schema
) -> Leaf | None:
    """Returns the leaf of a test's column if bounds of stored values are valid for the test.

    They are if values compare in the type of ``schema`` as they do in the stored type.
    """
    path = test.term.path
    if not path or path[0] in constants:
        return None
    leaf = file.schema.leaf(path)
    if leaf is None or leaf.max_repetition_level:
        return None
    stored = file.arrow_type(file.schema.roots[leaf.root])
    return leaf if types_agree_at(stored, schema.field(path[0]).type, path[1:]) else None


def values_agree(file: OpenedFile, term: Term, constants: Constants, schema: pa.Schema) -> bool:
    """True if an index of stored values of a term is valid for the types of ``schema``.

    A field's type must compare like the stored type. For functions, types must be equal.
    """
    for path in term.fields:
        root = file.schema.root(path[0])
        if path[0] in constants or root is None:
            return False
        stored, seen = file.arrow_type(root), schema.field(path[0]).type
        if not types_agree_at(stored, seen, path[1:], exactly=not term.path):
            return False
    return True


def missing_columns(
    file: OpenedFile, tests: Sequence[Predicate], constants: Constants, schema: pa.Schema
) -> Constants:
    """Returns the value of each column of ``tests`` that ``file`` and its partition values lack.

    It is NULL, unless the file is part of a table with a default.
    """
    names = {path[0] for test in tests for path in test.term.fields}
    missing = [name for name in names - constants.keys() if file.schema.root(name) is None]
    return {name: file.missing_value(schema.field(name)) for name in missing}


def check_folder(file: OpenedFile, constants: Constants, schema: pa.Schema) -> None:
    """Raises ``FormatError`` if the footer contradicts a partition value.

    ``constants`` are the partition values. Files may store these columns as well.
    """
    for name, value in constants.items():
        if file.schema.root(name) is None or not file.trusts_bounds:
            continue
        test = _equals(name, value)
        leaf = leaf_of(file, test, {}, schema)
        if leaf is None:
            continue
        differ = _differ(test, file.row_group_bounds(leaf.index))
        wrong = np.flatnonzero(differ & (np.diff(file.row_group_starts) > 0))
        if len(wrong):
            raise FormatError(
                f"the folder says {name}={value}, but the file's own column {name!r} has another "
                "value: move the file, or give partitioning=None to read the file's column",
                Where(file.name, row_group=int(wrong[0]), column=name),
            )


def _differ(test: Comparison, bounds: Bounds) -> BoolArray:
    """Returns a mask of the row groups whose bounds show a row that fails ``test``, an equality."""
    differ = ~rows_might_match(test, bounds)
    if test.nulls:
        return differ | bounds.bounded
    differ |= bounds.null_counts > 0
    brackets = bounds.order.brackets(test.values)
    if brackets is None:
        return differ
    (key,), _ = brackets
    low, high = bounds.low.tolist(), bounds.high.tolist()
    others = [_is_other(a, key) or _is_other(b, key) for a, b in zip(low, high, strict=True)]
    return differ | (bounds.bounded & np.array(others, dtype=np.bool_))


def _is_other(bound: Key, key: Key) -> bool:
    """True if a bound shows a value other than ``key``. Bounds of bytes may be cut short."""
    is_cut = isinstance(bound, bytes) and isinstance(key, bytes) and len(bound) < len(key)
    return bool(bound != key) and not is_cut


def _equals(name: str, value: pa.Scalar) -> Comparison:
    if not value.is_valid:
        return Comparison(field_term(name), Op.NONE, nulls=True)
    return Comparison(field_term(name), Op.EQ, pa.array([value]), nans=True)
