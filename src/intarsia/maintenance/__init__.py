"""Reports the state of a data set, and brings its files in line with its policy."""

from __future__ import annotations
