"""The common base of all indexes."""

from __future__ import annotations

from typing import ClassVar


class Index:
    """Base class of all indexes, for type annotations: ``list[ia.Index | str]``.

    Its subclasses are the built-in kinds, kinds of your own, ``PageIndex`` and ``Bloom``.
    """

    __slots__ = ()

    kind: ClassVar[str]
