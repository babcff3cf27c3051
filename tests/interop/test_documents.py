"""The documents: their Python code runs unchanged, and their links are valid."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import intarsia as ia

ROWS = 2000
CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")])
RUN = [
    "README.md",
    "docs/get-started.md",
    "docs/how-to/check-and-recover.md",
    "docs/how-to/choose-indexes.md",
    "docs/how-to/find-a-message.md",
    "docs/how-to/find-an-id.md",
    "docs/how-to/index-files.md",
    "docs/how-to/keep-a-lake-indexed.md",
    "docs/how-to/object-stores.md",
    "docs/how-to/query-from-python.md",
    "docs/how-to/rewrite-a-lake.md",
    "docs/how-to/serve-needles.md",
    "docs/how-to/undo.md",
    "docs/how-to/write-files.md",
    "docs/reference/indexes.md",
]
"""Documents with Python code to run.

Blocks that import ``intarsia.spark`` are left out, as are blocks marked ``py``, which are for other
programs.
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake" / "logs").mkdir(parents=True)
    day = datetime(2025, 12, 31)
    ia.write_table(
        pa.table(
            {
                "ts": [day + timedelta(minutes=i) for i in range(ROWS)],
                "trace_id": [f"{i:06x}" for i in range(ROWS)],
                "user_id": [i % 100 for i in range(ROWS)],
                "email": [f"{i}@B.org" for i in range(ROWS)],
                "msg": ["disk full again" if i % 50 == 0 else "all is well" for i in range(ROWS)],
                "tags": [["urgent"] if i % 9 == 0 else [] for i in range(ROWS)],
            }
        ),
        tmp_path / "lake" / "logs" / "1.parquet",
        row_group_size=500,
    )
    yield
    ia.usage.disable()  # documents enable it


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("name", RUN)
def test_python_runs(name: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (CHECKOUT / name).read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        if "intarsia.spark" not in block:
            exec(compile(block, name, "exec"), names)
    assert names["ia"] is ia


@pytest.mark.usefixtures("lake")
def test_the_answers_are_right() -> None:
    text = (CHECKOUT / "docs/how-to/query-from-python.md").read_text()
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "query-from-python.md", "exec"), names)
    table, data = names["table"], names["ds"]
    assert isinstance(table, pa.Table)
    assert isinstance(data, ia.Dataset)
    assert table.num_rows == 1000
    assert ia.ParquetFile("a.parquet").read().equals(table)
    assert data.count_rows(filter="user_id = 7") == ROWS / 100


@pytest.fixture
def delta(tmp_path: Path) -> dict[str, object]:
    """A Delta table of nine versions, at the place that the page names."""
    deltalake = pytest.importorskip("deltalake")
    table = pa.table({"id": range(100), "key": [f"k{n % 10}" for n in range(100)]})
    for _ in range(9):
        deltalake.write_deltalake(tmp_path / "events", table, mode="append")
    return {"/lake/events": str(tmp_path / "events")}


@pytest.fixture
def iceberg(tmp_path: Path) -> dict[str, object]:
    """An Iceberg table, by the names and in the places that the page uses."""
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = sql.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("lake")
    rows = pa.table({"id": range(100), "key": ["k1", "k2"] * 50, "svc": ["pay"] * 100})
    table = catalog.create_table("lake.events", rows.schema)
    table.append(rows)
    return {
        "catalog": catalog,
        "table": table,
        "s3://lake/events/metadata/00007-….metadata.json": table.metadata_location,
        "7431": str(table.current_snapshot().snapshot_id),
    }


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_python_about_tables_runs(name: str, request: pytest.FixtureRequest) -> None:
    """Statements for Spark and for S3 are left out."""
    names = dict(request.getfixturevalue(name))
    text = (CHECKOUT / f"docs/how-to/{name}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = "\n".join(blocks)
    for place in [key for key in names if not key.isidentifier()]:
        code = code.replace(place, names.pop(place))
    statements = [ast.unparse(statement) for statement in ast.parse(code).body]
    run = [one for one in statements if not re.search(r"\bspark\b|\bias\b|s3:/", one)]
    exec("\n".join(run), names)
    assert len(run) > 8
    assert names["events"].count_rows("key = 'k1'") > 0


def links_in(text: str) -> Iterator[str]:
    without_code = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    yield from re.findall(r"\]\(([^)\s]+)\)", without_code)


def anchors_in(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    without_code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_headings(document: Path) -> None:
    broken = []
    for link in links_in(document.read_text()):
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            anchors = anchors_in(target.read_text()) if anchor and target.exists() else {anchor}
            if not target.exists() or anchor not in anchors:
                broken.append(link)
    assert broken == []
