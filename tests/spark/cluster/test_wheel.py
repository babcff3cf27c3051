"""Executors need the wheel and its dependencies, or the dependencies and the package sent along."""

from __future__ import annotations

import email
import importlib.metadata
import shutil
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import intarsia as ia
import intarsia.spark as ias

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


@pytest.fixture
def wheel(distributions):
    """The wheel of this checkout."""
    (built,) = distributions.glob("*.whl")
    return built


@pytest.fixture
def bare(wheel, tmp_path):
    """A Python with only the dependencies of the wheel and of its extra for Spark."""
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        requirements = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist")
    for installed in closure(requirements, "spark"):
        for part in {Path(file).parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            link = packages / part
            if not link.exists():
                link.symlink_to(installed.locate_file(part))
    return tmp_path / "venv" / "bin" / "python", packages


def closure(requirements, extra=""):
    """Returns the installed distributions that these require, with no extras but ``extra``."""
    actual = {}
    left = [(one, extra) for one in requirements]
    while left:
        text, extra = left.pop()
        need = Requirement(text)
        is_asked = need.marker is None or need.marker.evaluate({"extra": extra})
        if need.name in actual or not is_asked:
            continue
        actual[need.name] = importlib.metadata.distribution(need.name)
        left += [(one, "") for one in actual[need.name].requires or ()]
    return actual.values()


def places(spark):
    """The paths from which executors import the package."""

    def look(batches):
        import pyarrow

        import intarsia

        for _ in batches:
            yield pyarrow.RecordBatch.from_pylist([{"file": intarsia.__file__}])

    actual = spark.range(0, 4, 1, 4).mapInArrow(look, "file string").collect()
    return {row.file for row in actual}


def check_work(spark, folder):
    """Asserts that writing, reading and the format work in executors."""
    data = spark.range(0, 1000, 1, 3).selectExpr("id", "id % 2 AS p", "concat('x', id) AS text")
    ias.write(data, folder, indexes=["text:lookup", "text:ngram"], partition_by="p")
    actual = ias.read(spark, folder, where="text = 'x7' OR id > 997")
    assert sorted(row.id for row in actual.collect()) == [7, 998, 999]
    data.write.format("intarsia").mode("append").save(str(folder.with_name("format")))
    reader = spark.read.format("intarsia").option("where", "text LIKE '%99'")
    assert reader.load(str(folder.with_name("format"))).count() == 10
    assert not ia.verify(folder)


def test_executors_need_only_the_wheel_and_its_dependencies(wheel, bare, session_on, tmp_path):
    python, packages = bare
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    spark = session_on(python=str(python))
    assert places(spark) == {str(packages / "intarsia" / "__init__.py")}
    check_work(spark, tmp_path / "lake")


def test_the_wheel_can_be_sent_along(wheel, bare, session_on, tmp_path):
    python, _ = bare
    spark = session_on(python=str(python))
    with pytest.raises(ia.MissingDependencyError, match="a Python without intarsia"):
        ias.write(spark.range(10), tmp_path / "lake")
    assert not (tmp_path / "lake").exists()
    sent = shutil.copy(wheel, tmp_path / "intarsia.zip")  # Spark accepts .zip, not .whl
    spark.addArtifacts(str(sent), pyfile=True)
    (place,) = {Path(file).parent.parent.name for file in places(spark)}
    assert place == "intarsia.zip"
    check_work(spark, tmp_path / "lake")
