"""``FileView``: how one file of a table is read, if its log says more than the file does.

::

    file     col-1 (id 1)   col-7 (id 2)      what the log says
                │               │
    table      key             dropped        part = 'a'   (a constant)   rows 4 and 9 are deleted

A view gives the file's columns the names of the table when its footer is opened. Everything above
the footer sees these names only: statistics, page indexes, embedded indexes, filters and results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from intarsia.errors import FormatError
from intarsia.file.table_statistics import TableStatistics
from intarsia.parquet.metadata import ConvertedType, SchemaElement
from intarsia.process_state import cached_property
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges


@dataclass(frozen=True, slots=True)
class MappedField:
    """A column of a table, or a field within one, and how files store it.

    ``stored_names`` are the names that it may have in files, and ``field_id`` is its id there.
    ``fields`` are the fields of a struct, the element of a list, or the key and the value of a map.
    """

    name: str
    stored_names: tuple[str, ...] = ()
    field_id: int | None = None
    fields: tuple[MappedField, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """The columns of a table, and how files store them. Other columns of a file are hidden.

    If ``by_id``, columns are those of the same field id in files that have field ids. In other
    files they are those of a stored name. ``other_names`` are columns of the table that files are
    not to provide, such as partition columns.

    Examples
    --------
    >>> from intarsia.file.file_view import ColumnMapping, MappedField
    >>> mapping = ColumnMapping((MappedField("key", ("col-1",)),))
    >>> mapping.fields[0].name
    'key'
    """

    fields: tuple[MappedField, ...]
    by_id: bool = False
    other_names: frozenset[str] = frozenset()

    def names(self, elements: Sequence[SchemaElement]) -> list[str]:
        """Returns the names that a table gives to a file's schema elements, in depth-first order.

        Hidden columns have a name that no column of the table has. Raises ``FormatError`` for a
        file without field ids, if columns are mapped by id and have no stored names.
        """
        has_ids = any(element.field_id is not None for element in elements)
        has_names = any(one.stored_names for one in self.fields)
        if self.by_id and self.fields and not (has_ids or has_names):
            raise FormatError("it has no field ids, and its table has no name mapping")
        names = [element.name for element in elements]
        naming = _Naming(elements, names, by_id=self.by_id and has_ids)
        naming.name_children(0, self.fields, self.other_names)
        return names


@dataclass(frozen=True, slots=True)
class FileView:
    """How one file of a table is read. All parts are optional.

    Attributes
    ----------
    columns : ColumnMapping or None
        The names of the file's columns in the table. None leaves the file's own names.
    constants : mapping from str to pyarrow.Scalar
        Columns that have one value in the whole file, by their names in the table. ``columns`` has
        to hide a column that the file stores for them as well.
    deleted_rows : RowRanges or None
        Rows of the file, from 0, that are no rows of the table.
    defaults : mapping from str to pyarrow.Scalar
        The values of columns that the file lacks, if they are not NULL.
    root : str or None
        The folder of the table, in which what indexes save is counted.
    """

    columns: ColumnMapping | None = None
    constants: Constants = field(default_factory=dict)
    deleted_rows: RowRanges | None = None
    defaults: Mapping[str, pa.Scalar] = field(default_factory=dict)
    root: str | None = None

    @property
    def is_plain(self) -> bool:
        """True if any reader of Parquet gives the view's rows, given the constants."""
        return self.columns is None and not self.deleted_rows and not self.defaults

    @property
    def names(self) -> FileView:
        """The view of all rows and of no defaults. Indexes are built on these."""
        return FileView(self.columns, self.constants)

    def constants_in(self, schema: pa.Schema) -> Constants:
        """Returns the constants that are columns of ``schema``, in its types."""
        if not self.constants:
            return self.constants
        kinds = {name: schema.field(name).type for name in self.constants if name in schema.names}
        values = self.constants
        return {
            name: values[name] if values[name].type == kind else values[name].cast(kind)
            for name, kind in kinds.items()
        }


OWN_VIEW = FileView()
"""The view of a file that is no part of a table."""


@dataclass(frozen=True, eq=False)
class TableSnapshot:
    """The files of a table at one version, and how each is read.

    ``name`` is the table with its version, for messages, such as ``"Delta table /lake/t, version
    3"``. ``views`` has the files by path. ``root`` is the folder of the table, if it has one.
    ``statistics`` are those of the log, if it has some.
    """

    name: str
    views: Mapping[str, FileView]
    root: str | None = None
    statistics: TableStatistics | None = None

    @cached_property
    def is_plain(self) -> bool:
        """True if all views are plain."""
        return all(view.is_plain for view in self.views.values())

    def only(self, paths: Iterable[str]) -> TableSnapshot:
        """Returns the snapshot with the views of these files alone.

        Statistics are dropped if files are: those of all files may be much larger than the rest.
        """
        views = {path: self.views[path] for path in paths}
        statistics = self.statistics if len(views) == len(self.views) else None
        return replace(self, views=views, statistics=statistics)


class _Naming:
    """Gives the elements of one schema the names of a table."""

    def __init__(self, elements: Sequence[SchemaElement], names: list[str], *, by_id: bool) -> None:
        self._elements, self._names, self._by_id = elements, names, by_id

    def name_children(
        self,
        parent: int,
        fields: Sequence[MappedField],
        other_names: Collection[str] = (),
    ) -> None:
        """Names the children of an element. Hidden children get none of ``other_names``."""
        taken = {one.name for one in fields}.union(other_names)
        mapped: set[str] = set()
        for child in self._children(parent):
            match = self._field_of(self._elements[child], fields)
            if match is None or match.name in mapped:
                self._names[child] = _unused(self._elements[child].name, taken)
                taken.add(self._names[child])
                continue
            self._names[child] = match.name
            mapped.add(match.name)
            self._name_within(child, match.fields)

    def _name_within(self, position: int, fields: Sequence[MappedField]) -> None:
        """Names what is within an element: the fields of a struct, a list's element, or a map's."""
        element = self._elements[position]
        logical = element.logicalType
        converted = element.converted_type
        is_map = converted in (ConvertedType.MAP, ConvertedType.MAP_KEY_VALUE) or (
            logical is not None and logical.MAP is not None
        )
        is_list = converted == ConvertedType.LIST or (
            logical is not None and logical.LIST is not None
        )
        if not fields or not element.num_children:
            return
        if not (is_map or is_list):
            self.name_children(position, fields)
            return
        (repeated,) = [*self._children(position)][:1]
        values = [*self._children(repeated)]
        if is_list and (len(values) != 1 or self._is_struct_element(position, repeated)):
            values = [repeated]  # a list of two levels: the repeated group is the element
        for value, one in zip(values, fields, strict=False):
            self._name_within(value, one.fields)

    def _is_struct_element(self, parent: int, repeated: int) -> bool:
        """True if a repeated group is the element itself, by the specification's legacy rules."""
        name = self._elements[repeated].name
        return name == "array" or name == f"{self._elements[parent].name}_tuple"

    def _field_of(
        self, element: SchemaElement, fields: Iterable[MappedField]
    ) -> MappedField | None:
        if self._by_id:
            known = (one for one in fields if one.field_id is not None)
            return next((one for one in known if one.field_id == element.field_id), None)
        return next((one for one in fields if element.name in one.stored_names), None)

    def _children(self, parent: int) -> Iterator[int]:
        position = parent + 1
        for _ in range(self._elements[parent].num_children or 0):
            yield position
            position = self._after(position)

    def _after(self, position: int) -> int:
        """Returns the position after an element and everything within it."""
        open_elements = 1
        while open_elements:
            open_elements += (self._elements[position].num_children or 0) - 1
            position += 1
        return position


def _unused(name: str, taken: set[str]) -> str:
    """Returns ``name``, changed until it is not ``taken``."""
    while name in taken:
        name = f"_{name}"
    return name
