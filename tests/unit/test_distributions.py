"""The source distribution and the wheel hold what they must, and nothing else."""

import tarfile
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def package_files():
    """The files of the packages, but for caches."""
    paths = [path.relative_to(CHECKOUT / "src") for path in (CHECKOUT / "src").rglob("*")]
    return {str(path) for path in paths if path.suffix in (".py", ".j2") or path.name == "py.typed"}


def test_the_wheel_holds_the_packages_and_the_licence(distributions):
    (wheel,) = distributions.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    files = {name for name in names if ".dist-info/" not in name}
    assert files == package_files()
    assert "intarsia/py.typed" in files
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_source_distribution_holds_what_a_build_needs(distributions):
    (source,) = distributions.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    files = {name for name in names if "egg-info/" not in name}
    needed = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
    assert files == needed | {f"src/{name}" for name in package_files()}
