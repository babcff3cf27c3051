"""An archive of Spark's classes, which every Java that the tests start maps into memory.

Java takes 13 s of processor time to start Spark and run a small job. Most of it goes into parsing
classes: with the archive, Java takes 6 s. Java ignores an archive of another build of Java or of
other jars.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

import intarsia.spark as ias
from intarsia.spark.session import find_java_home


def archive_in(folder: Path) -> Path | None:
    """Returns the archive in ``folder``, which is made if it is not there.

    Returns None if this Java cannot add to an archive, since it has none of its own classes.
    """
    home = find_java_home() or os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    ran = subprocess.run(
        [java, "-Xshare:on", "-version"], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        return None
    made_for = hashlib.sha256(f"{pyspark.__file__} {pyspark.__version__} {ran.stderr}".encode())
    archive = folder / f"{made_for.hexdigest()[:16]}.jsa"
    if not archive.exists():
        for old in folder.glob("*.jsa"):
            old.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch, archive.name)
            subprocess.run([sys.executable, __file__, str(made)], check=True, capture_output=True)
            made.replace(archive)
    return archive


def main(archive: str) -> None:
    """Runs the small job, and waits for Java to end."""
    settings = {
        "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = ias.session("local[2]", **settings)
    folder = os.path.join(os.path.dirname(archive), "lake")
    data = spark.range(1000).selectExpr("id", "id % 3 AS part", "string(id) AS text")
    data.write.partitionBy("part").parquet(folder)
    written = spark.read.parquet(folder).where("id > 3").select("id")
    data.join(written, "id").groupBy("text").count().orderBy("text").collect()
    data.mapInArrow(lambda batches: batches, "id long, part long, text string").collect()
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()  # Java ends with its input
    java.wait()


if __name__ == "__main__":
    main(sys.argv[1])
