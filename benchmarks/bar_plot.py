"""Draws ratios as bars on a logarithmic axis as SVG, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from line_plot import STYLE

LABEL_WIDTH, WIDTH = 390, 330
"""Pixels for the labels, and for the bars."""
LINE_HEIGHT, TOP, BOTTOM = 16, 24, 8
HIGHER, SAME, LOWER = "#1a7f37", "#6e7781", "#cf222e"


def bar_plot(ratios: Sequence[tuple[str, float]], title: str, tie: float) -> str:
    """Returns an SVG with a bar from 1 to each ratio, in the order of ``ratios``.

    Ratios are positive. Ratios up to ``tie`` in either direction have a color of their own.
    """
    logarithms = [math.log10(ratio) for _, ratio in ratios]
    low, high = math.floor(min(logarithms, default=0)), math.ceil(max(logarithms, default=0))
    low, high = min(low, -1), max(high, 1)
    height = TOP + LINE_HEIGHT * len(ratios) + BOTTOM

    def x_of(logarithm: float) -> float:
        return LABEL_WIDTH + (logarithm - low) / (high - low) * (WIDTH - 20)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABEL_WIDTH + WIDTH} {height}" '
        'role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    for exponent in range(low, high + 1):
        x = x_of(exponent)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{height - BOTTOM}"/>'
            f'<text x="{x:.1f}" y="{TOP - 10}" text-anchor="middle">{10.0**exponent:g}</text>'
        )
    for number, (label, ratio) in enumerate(ratios):
        y = TOP + LINE_HEIGHT * number
        start, stop = sorted((x_of(0), x_of(math.log10(ratio))))
        color = HIGHER if ratio > tie else LOWER if ratio < 1 / tie else SAME
        parts.append(
            f'<text x="{LABEL_WIDTH - 6}" y="{y + 11}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{start:.1f}" y="{y + 3}" width="{max(stop - start, 1):.1f}" height="9" '
            f'fill="{color}"/>'
        )
    return "\n".join([*parts, "</svg>\n"])
