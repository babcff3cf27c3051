"""Case folding by a fixed table, so that an index keeps its meaning forever.

Two characters are folded alike if ``utf8_lower``, ``utf8_upper`` or a search that ignores case
equates them. The source is pyarrow 26: Unicode 16's simple mappings and RE2's orbits. The relation
is transitive: I, i, İ and ı are equal, as are S, s and ſ, and K, k and the Kelvin sign. So if a
string matches a pattern, with or without case, the folded string contains the folded pattern.

``tests/unit/test_case_folding.py`` checks all of Unicode. It fails if a later pyarrow knows more
pairs. Then extend the table, and raise ``FOLD_VERSION``.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

FOLD_VERSION = 1
"""Version of the table, which indexes store."""
CODE_POINTS = 0x110000
"""Number of Unicode code points."""

# "61-7A-32": U+0061 to U+007A are folded to the code point 32 below. "101/12F-1": every second one.
_FOLDS = """
61-7A-32 E0-F6-32 F8-FE-32 101/12F-1 130-231 131-232 133/137-1 13A/148-1 14B/177-1 178-121
17A/17E-1 17F-300 183/185-1 188-1 18C-1 192-1 199-1 1A1/1A5-1 1A8-1 1AD-1 1B0-1 1B4/1B6-1 1B9-1
1BD-1 1C5-1 1C6-2 1C8-1 1C9-2 1CB-1 1CC-2 1CE/1DC-1 1DD-79 1DF/1EF-1 1F2-1 1F3-2 1F5-1 1F6-97
1F7-56 1F9/21F-1 220-130 223/233-1 23C-1 23D-163 242-1 243-195 247/24F-1 253-210 254-206
256-257-205 259-202 25B-203 260-205 263-207 268-209 269-211 26F-211 272-213 275-214 280-218
283-218 288-218 289-69 28A-28B-217 28C-71 292-219 371/373-1 377-1 399-84 39C-743 3AC-38
3AD-3AF-37 3B1-3B8-32 3B9-116 3BA-3BB-32 3BC-775 3BD-3C1-32 3C2-31 3C3-3CB-32 3CC-64 3CD-3CE-63
3D0-62 3D1-57 3D5-47 3D6-54 3D7-8 3D9/3EF-1 3F0-86 3F1-80 3F3-116 3F4-92 3F5-96 3F8-1 3F9-7
3FB-1 3FD-3FF-130 430-44F-32 450-45F-80 461/481-1 48B/4BF-1 4C2/4CE-1 4CF-15 4D1/52F-1
561-586-48 13F8-13FD-8 1C80-6254 1C81-6253 1C82-6244 1C83-1C84-6242 1C85-6243 1C86-6236
1C87-6181 1C8A-1 1C90-1CBA-3008 1CBD-1CBF-3008 1E01/1E95-1 1E9B-59 1E9E-7615 1EA1/1EFF-1
1F08-1F0F-8 1F18-1F1D-8 1F28-1F2F-8 1F38-1F3F-8 1F48-1F4D-8 1F59/1F5F-8 1F68-1F6F-8 1F88-1F8F-8
1F98-1F9F-8 1FA8-1FAF-8 1FB8-1FB9-8 1FBA-1FBB-74 1FBC-9 1FBE-7289 1FC8-1FCB-86 1FCC-9 1FD3-7235
1FD8-1FD9-8 1FDA-1FDB-100 1FE3-7219 1FE8-1FE9-8 1FEA-1FEB-112 1FEC-7 1FF8-1FF9-128 1FFA-1FFB-126
1FFC-9 2126-7549 212A-8415 212B-8294 214E-28 2170-217F-16 2184-1 24D0-24E9-26 2C30-2C5F-48
2C61-1 2C62-10743 2C63-3814 2C64-10727 2C65-10795 2C66-10792 2C68/2C6C-1 2C6D-10780 2C6E-10749
2C6F-10783 2C70-10782 2C73-1 2C76-1 2C7E-2C7F-10815 2C81/2CE3-1 2CEC/2CEE-1 2CF3-1
2D00-2D25-7264 2D27-7264 2D2D-7264 A641/A649-1 A64A-35266 A64B-35267 A64D/A66D-1 A681/A69B-1
A723/A72F-1 A733/A76F-1 A77A/A77C-1 A77D-35332 A77F/A787-1 A78C-1 A78D-42280 A791/A793-1
A797/A7A9-1 A7AA-42308 A7AB-42319 A7AC-42315 A7AD-42305 A7AE-42308 A7B0-42258 A7B1-42282
A7B2-42261 A7B5/A7C3-1 A7C4-48 A7C5-42307 A7C6-35384 A7C8/A7CA-1 A7CB-42343 A7CD/A7DB-1
A7DC-42561 A7DD-42342 A7E2-42342 A7F6-1 AB53-928 AB6C-AB6D-33 AB70-ABBF-38864 FB06-1
FF41-FF5A-32 10428-1044F-40 104D8-104FB-40 10597-105A1-39 105A3-105B1-39 105B3-105B9-39
105BB-105BC-39 10CC0-10CF2-64 10D70-10D85-32 118C0-118DF-32 16E60-16E7F-32 16EBB-16ED3-27
1DF41-1 1DF49/1DF4B-1 1DF4E-1 1DF52-1 1DF69/1DF6F-1 1DF73/1DF7F-1 1E922-1E943-34
"""
_FOLD = re.compile(r"([0-9A-F]+)(?:([-/])([0-9A-F]+))?([-+][0-9]+)")


@cache
def fold_table() -> NDArray[np.uint32]:
    """Returns the folded code point of every code point. Shape ``(0x110000,)``, read-only."""
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    for fold in _FOLDS.split():
        parts = _FOLD.fullmatch(fold)
        assert parts is not None
        first, separator, last, shift = parts.groups()
        code_points = slice(
            int(first, 16), int(last or first, 16) + 1, 2 if separator == "/" else 1
        )
        table[code_points] += np.int64(shift).astype(np.uint32)
    table.flags.writeable = False
    return table


def folded(text: str) -> str:
    """Returns ``text`` with case folded. The number of characters stays the same."""
    return text.translate(_translation())


@cache
def _translation() -> dict[int, int]:
    table = fold_table()
    changed = np.flatnonzero(table != np.arange(CODE_POINTS, dtype=np.uint32))
    return dict(zip(changed.tolist(), table[changed].tolist(), strict=True))
