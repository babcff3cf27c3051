"""Finds words in lines of text: the source of Python's own library.

python examples/words_in_text.py [WORDS]
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path

import pyarrow as pa

import intarsia as ia


def lines() -> pa.Table:
    """Returns the lines of the library's top modules, with their file and number."""
    columns: dict[str, list[object]] = {"file": [], "line": [], "text": []}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
            columns["file"].append(path.name)
            columns["line"].append(number)
            columns["text"].append(text)
    return pa.table(columns)


def main(words: str) -> None:
    """Writes the lines with an index of their words, and prints those with all ``words``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lines.parquet")
        ia.write_table(lines(), path, indexes=["text:words"])
        data = ia.dataset(path)
        where = ia.contains_words("text", words)
        rows = data.to_table(filter=where)
        for row in rows.to_pylist():
            print(f"{row['file']}:{row['line']}: {row['text'].strip()}")
        verdict = data.explain(filter=where, analyze=True).verdict
        print(f"{rows.num_rows} of {data.count_rows():,} lines; {verdict}")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "guido rossum")
