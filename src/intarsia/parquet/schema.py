"""The schema tree of a file, as seen from its leaf columns.

Each OPTIONAL or REPEATED element on a leaf's path adds one to its maximum definition level. Each
REPEATED one also adds one to its maximum repetition level.

Source: section "Nested Encoding" of the specification; ``SchemaElement`` in ``parquet.thrift``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from intarsia.errors import FormatError
from intarsia.parquet.metadata import FieldRepetitionType, SchemaElement

_MAX_DEPTH = 256
"""Levels of nesting that are read before an error is raised."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column."""

    index: int
    """Position among the leaves, and of the column's chunk in each row group."""
    root: int
    """Position of its top-level field among all top-level fields."""
    path: tuple[str, ...]
    element: SchemaElement
    elements: tuple[int, ...]
    """Positions in the schema's element list of the elements on its path, its own last."""
    max_definition_level: int
    max_repetition_level: int

    @property
    def name(self) -> str:
        """The dotted path, as in column indexes and messages."""
        return ".".join(self.path)

    @property
    def is_flat(self) -> bool:
        """True if the column is top-level and not repeated: each row has one value or NULL."""
        return len(self.path) == 1 and self.max_repetition_level == 0


@dataclass(frozen=True, slots=True)
class Root:
    """A top-level field: its name, and the positions of its elements and leaves."""

    name: str
    elements: range
    all_leaves: range
    leaves: Sequence[int]
    """The leaves to read: all of them, unless the root is pruned."""
    coded: tuple[str, ...] = ()
    """Dotted paths of string columns to be read as Arrow dictionaries."""

    def pruned(self, leaves: Sequence[int]) -> Root:
        """Returns this root with only ``leaves``, which are ascending positions in the schema."""
        return replace(self, leaves=tuple(leaves))

    def with_dictionary_columns(self, paths: Iterable[tuple[str, ...]]) -> Root:
        """Returns this root with the strings at ``paths`` to be read as Arrow dictionaries."""
        return replace(self, coded=tuple(map(".".join, paths)))


@dataclass(frozen=True, slots=True)
class Schema:
    """The leaves and roots of a file's schema."""

    elements: tuple[SchemaElement, ...]
    roots: tuple[Root, ...]
    leaves: tuple[Leaf, ...]
    _roots: dict[str, Root] = field(init=False, repr=False, compare=False)
    _leaves: dict[tuple[str, ...], Leaf] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The first of several equal names wins.
        object.__setattr__(self, "_roots", {root.name: root for root in reversed(self.roots)})
        object.__setattr__(self, "_leaves", {leaf.path: leaf for leaf in reversed(self.leaves)})

    def root(self, name: str) -> Root | None:
        """Returns the first top-level field with this name, or None."""
        return self._roots.get(name)

    def leaf(self, path: str | tuple[str, ...]) -> Leaf | None:
        """Returns the leaf at this path, or None. A string is a top-level name, else dotted."""
        key = (path,) if isinstance(path, str) else path
        leaf = self._leaves.get(key)
        if leaf is None and isinstance(path, str):
            leaf = self._leaves.get(tuple(path.split(".")))
        return leaf


def read_schema(elements: list[SchemaElement]) -> Schema:
    """Builds the schema from a footer's element list, which is in depth-first order.

    Raises ``FormatError`` if the numbers of children do not add up, if an element has both a type
    and children, or beyond 256 levels.
    """
    if not elements:
        raise FormatError("the schema is empty")
    roots: list[Root] = []
    leaves: list[Leaf] = []
    at = 1
    for _ in range(elements[0].num_children or 0):
        start, first_leaf = at, len(leaves)
        at = _walk(elements, at, (), (), (0, 0), len(roots), leaves)
        name = elements[start].name
        own_leaves = range(first_leaf, len(leaves))
        roots.append(Root(name, range(start, at), own_leaves, own_leaves))
    if at != len(elements):
        raise FormatError(f"the schema has {len(elements) - at} elements outside its tree")
    return Schema(tuple(elements), tuple(roots), tuple(leaves))


def _walk(
    elements: list[SchemaElement],
    at: int,
    parent_path: tuple[str, ...],
    ancestors: tuple[int, ...],
    levels: tuple[int, int],
    root: int,
    leaves: list[Leaf],
) -> int:
    if at >= len(elements):
        raise FormatError("the schema claims more children than it has elements")
    if len(parent_path) > _MAX_DEPTH:
        raise FormatError(f"the schema nests deeper than {_MAX_DEPTH} levels")
    element = elements[at]
    path, positions = (*parent_path, element.name), (*ancestors, at)
    repetition = element.repetition_type
    definition_level = levels[0] + (repetition != FieldRepetitionType.REQUIRED)
    repetition_level = levels[1] + (repetition == FieldRepetitionType.REPEATED)
    children = element.num_children or 0
    if element.type is not None and children:
        raise FormatError(f"column {'.'.join(path)} has both a type and children")
    if element.type is not None:
        leaf = Leaf(len(leaves), root, path, element, positions, definition_level, repetition_level)
        leaves.append(leaf)
    at += 1
    for _ in range(children):
        at = _walk(
            elements, at, path, positions, (definition_level, repetition_level), root, leaves
        )
    return at
