import pytest


@pytest.fixture(autouse=True)
def temporary_files_of_who_is_killed(tmp_path_factory, monkeypatch):
    """Keeps temporary files of killed processes in a folder that pytest removes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
