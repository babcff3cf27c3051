"""The schema tree of a file, seen from its leaves.

Maximum levels follow the specification's section on nested encoding: every OPTIONAL or REPEATED
element on a leaf's path adds one to the definition level, every REPEATED one to the repetition
level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from intarsia.errors import FormatError
from intarsia.parquet.metadata import FieldRepetitionType, SchemaElement

_MAX_DEPTH = 256


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column."""

    index: int
    """Position among the leaves, and so of its chunk in every row group."""
    root: int
    """Position of its root among the schema's top-level fields."""
    path: tuple[str, ...]
    element: SchemaElement
    elements: tuple[int, ...]
    """Positions, among all the schema's elements, of those on its path; its own comes last."""
    max_definition_level: int
    max_repetition_level: int

    @property
    def name(self) -> str:
        """The dotted path, as column indexes and messages show it."""
        return ".".join(self.path)

    @property
    def is_flat(self) -> bool:
        """Top-level and not repeated: one value or NULL a row."""
        return len(self.path) == 1 and self.max_repetition_level == 0


@dataclass(frozen=True, slots=True)
class Root:
    """A top-level field: its name, and the positions of its elements and leaves."""

    name: str
    elements: range
    all_leaves: range
    leaves: Sequence[int]
    """Those that are wanted: all of them, unless it is pruned."""
    coded: tuple[str, ...] = ()
    """The dotted paths of texts that are to come as Arrow dictionaries."""

    def pruned(self, leaves: Sequence[int]) -> Root:
        """The same root with just ``leaves``, positions in the schema, ascending."""
        return replace(self, leaves=tuple(leaves))

    def with_codes(self, paths: Iterable[tuple[str, ...]]) -> Root:
        """The same root, whose texts at ``paths`` are to come as Arrow dictionaries."""
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
        # Of those of one name, the first.
        object.__setattr__(self, "_roots", {root.name: root for root in reversed(self.roots)})
        object.__setattr__(self, "_leaves", {leaf.path: leaf for leaf in reversed(self.leaves)})

    def root(self, name: str) -> Root | None:
        """The first top-level field of that name."""
        return self._roots.get(name)

    def leaf(self, path: str | tuple[str, ...]) -> Leaf | None:
        """The leaf of that path; a text is a top-level name first, else a dotted path."""
        wanted = (path,) if isinstance(path, str) else path
        found = self._leaves.get(wanted)
        if found is None and isinstance(path, str):
            found = self._leaves.get(tuple(path.split(".")))
        return found


def read_schema(elements: list[SchemaElement]) -> Schema:
    """The schema of a footer's depth-first element list.

    Raises ``FormatError`` where child counts do not add up or nest deeper than 256 levels.
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
        own = range(first_leaf, len(leaves))
        roots.append(Root(name, range(start, at), own, own))
    if at != len(elements):
        raise FormatError(f"the schema has {len(elements) - at} elements outside its tree")
    return Schema(tuple(elements), tuple(roots), tuple(leaves))


def _walk(
    elements: list[SchemaElement],
    at: int,
    parents: tuple[str, ...],
    above: tuple[int, ...],
    levels: tuple[int, int],
    root: int,
    leaves: list[Leaf],
) -> int:
    if at >= len(elements):
        raise FormatError("the schema claims more children than it has elements")
    if len(parents) > _MAX_DEPTH:
        raise FormatError(f"the schema nests deeper than {_MAX_DEPTH} levels")
    element = elements[at]
    path, here = (*parents, element.name), (*above, at)
    repetition = element.repetition_type
    definition_level = levels[0] + (repetition != FieldRepetitionType.REQUIRED)
    repetition_level = levels[1] + (repetition == FieldRepetitionType.REPEATED)
    children = element.num_children or 0
    if element.type is not None and children:
        raise FormatError(f"column {'.'.join(path)} has both a type and children")
    if element.type is not None:
        leaf = Leaf(len(leaves), root, path, element, here, definition_level, repetition_level)
        leaves.append(leaf)
    at += 1
    for _ in range(children):
        at = _walk(elements, at, path, here, (definition_level, repetition_level), root, leaves)
    return at
