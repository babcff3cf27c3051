"""Regular expressions that mean the same in Rust's regex (Polars) and in RE2 (pyarrow).

Both search for a match anywhere, by code points of UTF-8. They differ in ``\\d``, ``\\w`` and
``\\b``, in set operations within classes, and in repetitions of repetitions. So a pattern may have
literals, ``.``, classes of ASCII letters and digits, groups, alternatives and anchors, and
repetitions of one of these.
"""

from __future__ import annotations

import re

_MAX_PATTERN_LENGTH = 200
"""Characters of a pattern. Both engines refuse patterns that compile to too large a program."""
_LITERAL = r"[^\W]|[ !\"#%&',/:;<=>@`~_-]|\\[.^$*+?()\[\]{}|\\/-]"
_RANGE = r"[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]"
_CLASS = rf"\[\^?(?:{_RANGE}|[A-Za-z0-9_ ])+\]"
_ATOM = re.compile(rf"(?:{_LITERAL}|\.|{_CLASS})(?:[*+?]|\{{\d{{1,2}}(?:,\d{{1,2}})?\}})?")
_ANCHOR = re.compile(r"[\^$]")
_GROUP_REPEATED = re.compile(r"[*+?]")


def means_the_same(pattern: str) -> bool:
    """True if Polars and pyarrow find ``pattern`` in the same strings."""
    return len(pattern) <= _MAX_PATTERN_LENGTH and _alternatives(pattern, 0) == len(pattern)


def _is_ordered(atom: str) -> bool:
    """True if ranges and counts ascend. Both engines refuse others, each with its own error."""
    ranges = re.findall(_RANGE, atom) if atom.startswith("[") else ()
    counts = re.findall(r"\{(\d+),(\d+)\}", atom)
    return all(r[0] <= r[2] for r in ranges) and all(int(a) <= int(b) for a, b in counts)


def _alternatives(pattern: str, at: int) -> int | None:
    """Returns the end of the alternatives that begin at ``at``. Returns None for other syntax."""
    end = _sequence(pattern, at)
    while end is not None and pattern[end : end + 1] == "|":
        end = _sequence(pattern, end + 1)
    return end


def _sequence(pattern: str, at: int) -> int | None:
    """Returns the end of one or more atoms, anchors and groups. Returns None for other syntax."""
    start = at
    while True:
        if pattern[at : at + 1] == "(":
            inner = _alternatives(pattern, at + 3 if pattern[at : at + 3] == "(?:" else at + 1)
            if inner is None or pattern[inner : inner + 1] != ")":
                return None
            at = inner + 1
            repeated = _GROUP_REPEATED.match(pattern, at)
            at = repeated.end() if repeated else at
        elif match := _ATOM.match(pattern, at) or _ANCHOR.match(pattern, at):
            if not _is_ordered(match[0]):
                return None
            at = match.end()
        else:
            return at if at > start else None
