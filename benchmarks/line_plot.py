"""Draws lines over two logarithmic axes as SVG, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 360, 280
"""Size of one panel in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 28, 40
"""Margins around the lines of a panel."""
LEGEND_HEIGHT, LEGEND_WIDTH = 28, 120
COLORS = ("#0969da", "#bf8700", "#8250df", "#cf222e", "#1a7f37", "#6e7781", "#bc4c00", "#0550ae")
STYLE = """
text { font: 11px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 12px }
.grid { stroke: #d0d7de; stroke-width: 0.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #484f58 } }
"""

Line = Sequence[tuple[float, float]]
"""Points of a line, from left to right. Both coordinates are positive."""


def line_plot(panels: Mapping[str, Mapping[str, Line]], x_label: str, y_label: str) -> str:
    """Returns an SVG with one panel for each title in ``panels``, side by side.

    A panel has lines by name. All panels have the same axes, and a name has one color in all.
    """
    points = [point for lines in panels.values() for line in lines.values() for point in line]
    (left, right), (low, high) = (_decades([point[axis] for point in points]) for axis in (0, 1))
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    colors = {name: COLORS[number % len(COLORS)] for number, name in enumerate(names)}
    width, height = WIDTH * len(panels), HEIGHT + LEGEND_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<style>{STYLE}</style>",
    ]
    for number, (title, lines) in enumerate(panels.items()):
        axes = _Axes(number * WIDTH, left, right, low, high)
        parts += axes.grid(title, x_label, y_label)
        parts += [axes.line(line, colors[name]) for name, line in lines.items()]
    for number, (name, color) in enumerate(colors.items()):
        x = LEFT + number * LEGEND_WIDTH
        parts.append(f'<line x1="{x}" y1="{HEIGHT + 12}" x2="{x + 18}" y2="{HEIGHT + 12}" ')
        parts.append(f'stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 23}" y="{HEIGHT + 16}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Returns the powers of ten around ``values``, as exponents."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


class _Axes:
    """Two logarithmic axes between powers of ten, at one place of the drawing."""

    def __init__(self, offset: int, left: int, right: int, low: int, high: int) -> None:
        self._offset, self._x, self._y = offset, (left, right), (low, high)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        """Returns the place of a point that is given by its logarithms."""
        (left, right), (low, high) = self._x, self._y
        across = (x - left) / (right - left) * (WIDTH - LEFT - RIGHT)
        up = (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return self._offset + LEFT + across, HEIGHT - BOTTOM - up

    def grid(self, title: str, x_label: str, y_label: str) -> list[str]:
        """Returns the title, the grid and the labels."""
        (left, right), (low, high) = self._x, self._y
        middle = self._offset + (LEFT + WIDTH - RIGHT) / 2
        parts = [
            f'<text class="title" x="{middle}" y="16" text-anchor="middle">{escape(title)}</text>',
            f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>',
            f'<text x="{self._offset + 4}" y="{TOP - 8}">{escape(y_label)}</text>',
        ]
        for exponent in range(left, right + 1):
            (x, bottom), (_, top) = self._at(exponent, low), self._at(exponent, high)
            parts.append(_rule(x, bottom, x, top))
            label = f"{10.0**exponent:g}"
            parts.append(f'<text x="{x:.1f}" y="{bottom + 14:.1f}" text-anchor="middle">{label}')
            parts[-1] += "</text>"
        for exponent in range(low, high + 1):
            (x, y), (end, _) = self._at(left, exponent), self._at(right, exponent)
            parts.append(_rule(x, y, end, y))
            label = f"{10.0**exponent:g}"
            parts.append(f'<text x="{x - 5:.1f}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        return parts

    def line(self, line: Line, color: str) -> str:
        places = (self._at(math.log10(x), math.log10(y)) for x, y in line)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        return f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.8"/>'


def _rule(x: float, y: float, end_x: float, end_y: float) -> str:
    return f'<line class="grid" x1="{x:.1f}" y1="{y:.1f}" x2="{end_x:.1f}" y2="{end_y:.1f}"/>'
