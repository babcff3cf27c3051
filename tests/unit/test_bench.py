"""The benchmark of questions on a small table, run as on the command line."""

import gzip
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import bench
import bench_page
import bench_report
import floor
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
import queries
import service
import workloads
from prose import problems_in

from intarsia.decode import splice
from intarsia.io import file_handle
from intarsia.io.storage import FileSource

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "queries.py"
ROWS = 60_000
ENGINES = ["Intarsia", "DuckDB", "Polars", "DataFusion", "DataFusion+", "pyarrow"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    data = tmp_path_factory.mktemp("bench-data")

    def run(*options, rows=ROWS):
        """Runs the benchmark and returns its output; it fails if engines disagree."""
        given = ["--rows", str(rows), "--runs", "1", "--data", str(data), *options]
        command = [sys.executable, str(BENCHMARK), *given]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def results(run):
    return {actual["name"]: actual for actual in json.loads(run("--json", "--plain"))["results"]}


def test_all_engines_agree_on_all_questions(results):
    rows = {name: actual["rows"] for name, actual in results.items()}
    slow_errors = rows.pop("status")
    assert rows == {"trace_id": 1, "user_id": 3, "ts": 500, "msg": 5, "full": ROWS}
    assert slow_errors > 0
    for actual in results.values():
        assert [name for name in actual["ms"] if name in ENGINES] == ENGINES


def test_questions_of_an_index_read_at_most_their_bytes(results):
    for name in ("trace_id", "user_id", "ts"):
        actual = results[name]
        assert actual["bytes_matching"] <= actual["bytes_warm"]
        assert actual["bytes_met"]
        assert actual["bytes_cold"] > actual["bytes_warm"]


def test_shares_of_the_time_add_up(results):
    for actual in results.values():
        if actual["shares"] is not None:
            assert sum(actual["shares"].values()) == pytest.approx(1)
            assert actual["shares"]["pyarrow"] > 0.02, "the function that calls its reader is known"


def test_the_functions_that_call_pyarrow_and_read_storage_are_known():
    functions = (splice._decoded, file_handle._LocalHandle.read_at)
    known = [(Path(inspect.getfile(function)).name, function.__name__) for function in functions]
    assert known == [floor._DECODING, floor._READING]


def test_the_time_of_reads_is_a_share_of_storage(tmp_path):
    path = tmp_path / "zeros"
    path.write_bytes(bytes(1 << 25))
    source = FileSource(pafs.LocalFileSystem(), str(path))
    shares = [floor.shares(lambda: source.read([(0, 1 << 25)])).storage for _ in range(9)]
    assert max(shares) > 0.5  # other processes take time from each part


def test_tables_are_readable(run):
    text = run("--markdown", "--queries", "trace_id,ts", "--engines", "Polars")
    times, floors = [part.splitlines() for part in text.strip().split("\n\n")[1:]]
    assert times[0].startswith("| all columns, ms | rows | Intarsia | Polars |")
    assert len(times) == len(floors) == 4


def test_growth_is_one_ratio(run):
    growth = json.loads(run("--json", "--grow", rows=ROWS // 10))["growth"]
    assert list(growth["ms"]) == ["6,000", "60,000"]
    assert growth["ratio"] > 0


def printed(script, *options):
    """Runs a benchmark and returns its output; it fails if engines disagree."""
    command = [sys.executable, str(BENCHMARK.with_name(script)), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_benchmark_of_many_files_finds_its_row_in_every_engine():
    text = printed("many_files.py", "--files", 20, "--rows", 50, "--rounds", 1)
    assert len(text.splitlines()) == 2 + 12


def test_the_benchmark_of_indexes_measures_all_it_lists(tmp_path):
    options = ("--rows", ROWS, "--runs", 1, "--data", tmp_path, "--engines", "Intarsia,pyarrow")
    text = printed("indexes.py", *options)
    assert "| `trace_id = …`, lookup, its page held |" in text
    assert "`user_id IN` 1,000 values, lookup: 1,9" in text
    assert "| `latency > 10`, `MinMax` |" in text


def test_the_benchmark_of_strings_measures_all_it_lists(tmp_path):
    lines = [f"zlib1g-dev wombat autopkgtest line {number}" for number in range(20_000)]
    with gzip.open(tmp_path / "a.gz", "wt") as out:
        out.write("\n".join(lines))
    text = printed("text.py", "--glob", tmp_path / "*.gz", "--runs", 1, "--data", tmp_path)
    assert "| word `wombat` | 20,000 | 10 of 10 |" in text


def test_the_benchmark_of_files_without_page_indexes_agrees(tmp_path):
    text = printed("unindexed.py", "--rows", 20_000, "--runs", 1, "--data", tmp_path)
    assert len(text.splitlines()) == 2 + 8


def test_the_benchmark_of_first_rows_agrees_on_all_queries(tmp_path):
    text = printed("first_rows.py", "--rows", ROWS, "--runs", 1, "--data", tmp_path)
    assert len(text.splitlines()) == 2 + 10


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
def test_the_benchmark_of_memory_measures_calls(tmp_path):
    text = printed("memory_limits.py", "sql", "add", "--scale", 0.001, "--data", tmp_path)
    sql, add = ([cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines()[2:])
    assert [cell.isdecimal() for cell in sql + add] == [True, True, False, False] + [True] * 4


def test_lines_from_few_rows_to_all_are_drawn_for_each_engine(tmp_path):
    plot = tmp_path / "lines.svg"
    options = ("--rows", 20_000, "--runs", 1, "--data", tmp_path, "--engines", "Intarsia,pyarrow")
    text = printed("selectivity.py", *options, "--plot", plot)
    rows = [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("| `ts < …`")]
    assert rows == [["| `ts < …`", count] for count in ("2", "20", "200", "2,000", "10,000")]
    lines = ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}polyline")
    points = [len(line.get("points").split()) for line in lines]
    assert points == [5] * 6


@pytest.fixture(scope="module")
def bench_folders(tmp_path_factory):
    """The folders of data and output of ``bench.py``, which fails if engines disagree."""
    data, output = (tmp_path_factory.mktemp(name) for name in ("bench-all", "bench-output"))
    options = ("--size", "smoke", "--data", data, "--output", output, "--docs", output / "docs")
    printed("bench.py", *options)
    return data, output


def test_json_table_and_plot_of_all_workloads_agree(bench_folders):
    _, output = bench_folders
    results = json.loads((output / "results.json").read_text())
    names = [workload["name"] for workload in results["workloads"]]
    assert {*names, *results["skipped"]} == {*workloads.WORKLOADS}
    assert results["skipped"].keys() <= {"changelogs"}, "only its data may be absent"
    text = (output / "results.md").read_text()
    assert text == bench_report.report(results)
    for workload in results["workloads"]:
        for query in workload["queries"]:
            word, peer, ratio = bench_report.verdict(query)
            line = f"{workload['name']}: {query['query']} | {query['rows']:,} | {word} | {peer}"
            assert f"| {line} | {ratio:.2f} |" in text
            assert query["engines"].keys() >= {workloads.OURS, "DuckDB", "Polars"}
    lines = ElementTree.parse(output / "curve.svg").iter("{http://www.w3.org/2000/svg}polyline")
    assert sum(len(line.get("points").split()) for line in lines) == len(results["curve"])


def test_the_page_lists_each_query_once_in_plain_sentences(bench_folders):
    _, output = bench_folders
    results = json.loads((output / "results.json").read_text())
    path = output / "docs" / bench_page.PAGE
    text = path.read_text()
    assert list(problems_in(path)) == []
    labels = [
        f"{workload['name']}: {query['query']}"
        for workload in results["workloads"]
        for query in workload["queries"]
    ]
    assert {label: text.count(f"\n| {label} | ") for label in labels} == dict.fromkeys(labels, 1)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table
    pictures = re.findall(r"!\[[^]]+\]\((.*)\)", text)
    assert len(pictures) == 2
    for picture in pictures:
        assert ElementTree.parse(path.parent / picture).getroot().tag.endswith("svg")
    for title in ("Lookups a second", "Requests to S3", "More rows and files"):
        assert f"## {title}" in text


def test_ratios_outside_of_the_spreads_on_the_page_are_listed(bench_folders):
    _, output = bench_folders
    results = json.loads((output / "results.json").read_text())
    page = (output / "docs" / bench_page.PAGE).read_text()
    count = sum(len(workload["queries"]) for workload in results["workloads"])
    within = f"{count} of {count} ratios lie within the spreads of docs/benchmark.md."
    assert bench_page.ratios_outside(results, page) == within
    workload = results["workloads"][0]
    query = workload["queries"][0]
    _, peer, ratio = bench_report.verdict(query)
    query["engines"] = {name: query["engines"][name] for name in (workloads.OURS, peer)}
    query["engines"][peer]["warm"]["processor"]["median"] *= 1000
    first, line = bench_page.ratios_outside(results, page).splitlines()
    assert first.startswith(f"{count - 1} of {count} ")
    label = f"- {workload['name']}: {query['query']}: {1000 * ratio:.2f}, not "
    assert line.startswith(label)


def test_the_web_log_has_rows_for_each_search(tmp_path):
    workload = workloads.web_log_workload(workloads.SIZES["smoke"], tmp_path)
    rare, frequent, session, folder = [query.rows for query in workload.queries]
    assert rare == session == 1
    assert frequent > folder > 100


def test_reasons_are_those_of_the_query_and_of_the_peer():
    reason = bench_page.reason_of
    assert reason("logs", "`trace_id = …`, lookup index", workloads.ART).startswith("DuckDB's")
    assert reason("logs", "`trace_id = …`, lookup index", "Polars") == "Not known yet."
    assert reason("file by DuckDB", "`ts` range, no index", "Polars").startswith("Pages are long")
    assert reason("file by DuckDB", "full read of 3 columns", "Polars").startswith("Nothing can")
    added = reason("file by DuckDB, lookups added", "`user_id = …`, lookup index", "DuckDB")
    assert "long pages" in added
    assert reason("web log", "`url = '/'`, the most frequent", "Polars") == bench_page.EVERYWHERE


def test_the_fastest_peer_on_parquet_is_named_beside_a_table_of_duckdb():
    times = {"Intarsia": 3, workloads.ART: 1, "Polars": 5, "DataFusion": 4}
    engines = {
        name: {"warm": queries.Times(wall=[ms], processor=[ms]).summary()}
        | {"cold": queries.Times(wall=[ms], processor=[ms]).summary()}
        for name, ms in times.items()
    }
    label = bench_page.peer_label({"engines": engines}, workloads.ART)
    assert label == "DuckDB, table with ART (on Parquet DataFusion, 4.0)"
    assert bench_page.peer_label({"engines": engines}, "Polars") == "Polars"


def test_the_benchmark_of_decompression_measures_each_column(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": range(1000), "b": ["text"] * 1000}), path, compression="zstd")
    lines = printed("decompression.py", path, "--runs", 1).splitlines()
    assert lines[0].startswith("| t.parquet | pages | MB |")
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| a", "| b", "| all columns"]
    assert lines[2].split(" | ")[1] == "2", "a page of values and one of the dictionary"


def test_goals_of_a_service_depend_on_the_mode():
    line = {"per_second": 500, "median_ms": 2, "p99_ms": 11}
    figures = dict.fromkeys(service.MODES, line)
    actual = {mode: service.goal_of(mode, 500, figures)[1] for mode in figures}
    assert actual == {
        "1 thread": True,
        "4 threads": None,
        "16 threads": False,
        "2 processes": False,
    }


def test_the_log_table_has_the_peers_better_layouts(bench_folders):
    _, output = bench_folders
    logs = json.loads((output / "results.json").read_text())["workloads"][0]
    layouts = {
        f"{name}, {workloads.SORTED}" for name in workloads.ENGINES if name != workloads.OURS
    }
    for query in logs["queries"]:
        assert query["engines"].keys() == {*workloads.ENGINES, *layouts, workloads.ART}
    indexed, *_ = logs["built"]
    assert 0 < indexed["index_bytes"] < indexed["bytes"]


def test_peak_memory_is_that_of_one_engine(bench_folders):
    data, _ = bench_folders
    peak = printed("bench.py", "--size", "smoke", "--data", data, "--peak", "logs", workloads.ART)
    assert int(peak) > 0


@pytest.mark.parametrize(
    ("ours", "peer", "expected"), [(1, 2, "wins"), (2, 1, "loses"), (1, 1.1, "ties")]
)
def test_small_differences_are_ties(ours, peer, expected):
    times = {"Intarsia": ours, "peer": peer, "slow peer": 9}
    engines = {
        name: {"warm": queries.Times(wall=[ms], processor=[ms]).summary()}
        for name, ms in times.items()
    }
    assert bench_report.verdict({"engines": engines}) == (expected, "peer", peer / ours)


def test_different_answers_stop_the_benchmark(tmp_path):
    workload = workloads.wide_workload(workloads.SIZES["smoke"], tmp_path)
    query = workload.queries[0]
    runners = {name: open_() for name, open_ in workload.engines.items()}
    bench.check_answers(workload, query, runners)
    empty = workload.schema.empty_table()
    runners["pyarrow"] = lambda query: empty.select(query.columns)
    with pytest.raises(AssertionError, match="wide table"):
        bench.check_answers(workload, query, runners)
