import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

import intarsia as ia
from intarsia.decode.synthetic_footer import RootTemplate
from intarsia.scan import predicate_order, unit_reader
from intarsia.usage_counts import usage

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # children compile the package once
os.environ.pop("COLUMNS", None)  # rich goes by what it finds at first, and pytest-xdist sets it
# A shell starts background jobs with SIGINT ignored, and the commands under test inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(  # machines are busy with other things
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")

CHECKOUT = Path(__file__).parents[1]
NO_CORPUS = "no corpus: set INTARSIA_CORPUS to a folder with files/ and manifest.tsv"


def corpus_folder():
    """The corpus of real files, or None where there is none."""
    folder = Path(os.environ.get("INTARSIA_CORPUS") or CHECKOUT.parent / "shared" / "corpus")
    return folder if (folder / "files").is_dir() else None


@pytest.fixture(scope="session")
def corpus():
    """The folder of the corpus; a test that asks for it is skipped where there is none."""
    folder = corpus_folder()
    if folder is None:
        pytest.skip(NO_CORPUS)
    return folder


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    """The folder with the wheel and the source distribution of a copy of this checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, folder)
    shutil.copytree(CHECKOUT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    build = "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"
    command = [sys.executable, "-c", build]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stderr
    return folder / "dist"


@pytest.fixture
def as_codes(monkeypatch):
    """The paths of the columns that are decoded as dictionary indices."""
    seen = set()

    def opened(template, *arguments, **options):
        seen.update(template.as_dictionaries)
        return open_it(template, *arguments, **options)

    open_it = RootTemplate.opened
    monkeypatch.setattr(RootTemplate, "opened", opened)
    return seen


@pytest.fixture
def always_coded(monkeypatch, as_codes):
    """Reads dictionary indices however few they are; returns the paths decoded as such."""
    monkeypatch.setattr(predicate_order, "has_few_entries", lambda *_: True)
    monkeypatch.setattr(predicate_order, "STAGED_ROWS", 1)
    monkeypatch.setattr(unit_reader, "STAGED_ROWS", 1)
    return as_codes


@pytest.fixture(autouse=True)
def settings_are_restored():
    """Fails a test that leaves a setting of the process changed, since later tests would see it."""
    yield
    left = [name for name, is_set, _ in _SETTINGS if is_set()]
    for _, _, restore in _SETTINGS:
        restore()
    assert not left, f"the test leaves settings of the process: {left}"


_SETTINGS = (
    ("usage.enable", lambda: usage._counts.is_enabled, usage.disable),
    ("set_memory_limit", lambda: ia.memory_limit() is not None, lambda: ia.set_memory_limit(None)),
)


def pytest_generate_tests(metafunc):
    """A test that takes ``corpus_name`` runs once for each file of the corpus."""
    if "corpus_name" in metafunc.fixturenames:
        folder = corpus_folder()
        names = sorted(path.name for path in (folder / "files").iterdir()) if folder else []
        absent = pytest.param(None, marks=pytest.mark.skip(reason=NO_CORPUS), id="absent")
        metafunc.parametrize("corpus_name", names or [absent], ids=str if names else None)


def pytest_collection_modifyitems(config, items):
    """Runs tests that replace the Spark session last; pytest-xdist begins with whole folders."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _position(item.nodeid))
    else:
        items.sort(key=lambda item: item.get_closest_marker("cluster") is not None)


# Folders that one process runs, by their places: the Spark tests share a session, the golden tests
# what they read of the corpus. They take longest, so they come first. The cluster tests start
# sessions too, so they come when the memory that the golden tests take is free again.
_FOLDERS = {"tests/spark/": 0, "tests/golden/": 1, "tests/spark/cluster/": 3}


def _position(nodeid):
    """The place of a test in the sequence of a process: the many files of ``unit`` come last."""
    place = _FOLDERS.get(_scope_of(nodeid))
    return place if place is not None else 4 if nodeid.startswith("tests/unit/") else 2


def _scope_of(nodeid):
    """A folder or a file, whose tests share fixtures."""
    folders = [folder for folder in _FOLDERS if nodeid.startswith(folder)]
    return max(folders, key=len, default=nodeid.split("::")[0])


class _Scheduling(LoadScopeScheduling):
    """Gives each process whole folders or files, also after a process has crashed."""

    def _split_scope(self, nodeid):
        return _scope_of(nodeid)

    def remove_node(self, node):
        # pytest-xdist 3.8 hands the finished folders of a crashed process out again. A process
        # that is given no test thereby waits for ever.
        scopes = self.assigned_work[node]
        for scope in [scope for scope, tests in scopes.items() if all(tests.values())]:
            del scopes[scope]
        return super().remove_node(node)

    def _reschedule(self, node):
        if node in self.registered_collections:  # the process has collected its tests
            super()._reschedule(node)


def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False  # by the number of tests, which says little of time
    return _Scheduling(config, log)


_STATUS = pytest.StashKey[int]()


def pytest_sessionfinish(session, exitstatus):
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Ends the process at once, since Polars 2.1 sometimes aborts a process that exits normally."""
    if "polars" in sys.modules and _STATUS in config.stash:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[_STATUS])
