"""The workers' outcomes for every file of the corpus, and the table of them in the documents.

``python tests/golden/gathered.py`` writes that table again.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "corpus.md"
SHARES = 4
TWO_GIGABYTES = "apache-parquet-testing__data-large_string_map.brotli.parquet"
"""4 KB that inflate to 2 GB. Verifying them takes half a minute and 5.5 GB of memory."""
RETURNS_MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Makes Arrow give memory back at once. By default it keeps what it has freed."""
_BEGIN, _END = "<!-- table -->\n", "<!-- end of table -->\n"


def gather(corpus: Path) -> dict[str, dict]:
    """Outcomes by file name."""
    files = sorted(str(path) for path in (corpus / "files").iterdir())
    shares = [files[i::SHARES] for i in range(SHARES)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        parts = list(pool.map(run_share, shares))
    return {Path(path).name: actual for part in parts for path, actual in part.items()}


def run_share(files: list[str]) -> dict[str, dict]:
    actual: dict[str, dict] = {}
    while rest := [path for path in files if path not in actual]:
        command = [sys.executable, str(HERE / "worker.py")]
        done = subprocess.run(
            command,
            input="\n".join(rest),
            env=os.environ | RETURNS_MEMORY,
            capture_output=True,
            text=True,
            check=False,
        )
        path = None
        for line in done.stdout.splitlines():
            if line.startswith("start\t"):
                path = line.split("\t")[1]
            else:
                actual[path] = json.loads(line)
        if path is None or (done.returncode == 0 and rest[-1] not in actual):
            raise RuntimeError(f"a worker did nothing: {done.stderr[-2000:]}")
        if path not in actual:
            actual[path] = {"died": done.stderr[-2000:]}
    return actual


def grades(findings: list[dict]) -> Counter[str]:
    """Counts findings by severity."""
    return Counter(finding["severity"] for finding in findings)


def table(outcomes: dict[str, dict]) -> str:
    """Counts of files, as a Markdown table."""

    def count(check: str, *values: str) -> int:
        return sum(actual.get(check) in values for actual in outcomes.values())

    opened = [actual for actual in outcomes.values() if actual["opens"] == "yes"]
    severities = Counter(max(grades(actual["findings"]), default="clean") for actual in opened)
    clean = [actual for actual in opened if not actual["findings"] and "findings_after" in actual]
    walked = [
        actual["pages"] for actual in outcomes.values() if isinstance(actual.get("pages"), dict)
    ]
    rows = [
        ("files", len(outcomes)),
        ("opened", count("opens", "yes")),
        ("refused with an error of ours: not Parquet, damaged", count("opens", "no")),
        ("refused with an error of ours: encrypted", count("opens", "unsupported")),
        ("footer decoded and encoded again, identical", count("footer", "identical")),
        ("footer that no writer writes, equal only in meaning", count("footer", "differs")),
        ("all page headers walked", len(walked)),
        ("pages in these", sum(sum(pages.values()) for pages in walked)),
        ("read as pyarrow reads it, whole and in part", count("reads", "equal")),
        ("read neither by pyarrow nor here", count("reads", "by neither")),
        (
            "read by pyarrow only: fuzzed footers without a column",
            count("reads", "by pyarrow only"),
        ),
        ("page index added, and pyarrow's reading unchanged", count("page_index", "added")),
        ("page index refused, the file untouched", count("page_index", "refused")),
        ("verified without a finding", severities["clean"]),
        ("verified with warnings only", severities["WARNING"]),
        ("verified with errors", severities["ERROR"]),
        (
            "clean before, and clean with the page index added",
            sum(not actual["findings_after"] for actual in clean),
        ),
    ]
    lines = [f"| {what} | {number:,} |" for what, number in rows]
    return "\n".join(["| what | files |", "|---|---:|", *lines, ""])


def written_table() -> str:
    """The table as the documents have it."""
    text = TABLE.read_text(encoding="utf-8")
    return text.split(_BEGIN)[1].split(_END)[0]


def main() -> None:
    folder = os.environ.get("INTARSIA_CORPUS") or HERE.parents[2] / "shared" / "corpus"
    made = table(gather(Path(folder)))
    before, rest = TABLE.read_text(encoding="utf-8").split(_BEGIN)
    after = rest.split(_END)[1]
    TABLE.write_text(f"{before}{_BEGIN}{made}{_END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
