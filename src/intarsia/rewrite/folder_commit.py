"""The commit that replaces the files of one folder by new ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from intarsia.commit.commit import commit_entries, publish
from intarsia.commit.job import WrittenFile
from intarsia.commit.storage import Place
from intarsia.errors import FormatError, Where
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.rewrite.rewrite_plan import Folder, OldFile, OvertakenError, changed_since


def replace_folder(
    place: Place, job: str, folder: Folder, new: Sequence[WrittenFile], number: int
) -> None:
    """Publishes the new files of a folder, as the job's commit of this ``number``.

    Raises ``OvertakenError``, and keeps the old files, if one of them has changed.
    """
    check_rows(folder, sum(file.rows for file in new))
    old = [file.path for file in folder.files]
    remove = [*old, *sidecars_of(place, old)]
    check = partial(check_current, place, job, folder.files)
    publish(place, job, [file.path for file in new], remove, number=number, check=check)


def check_rows(folder: Folder, written: int) -> None:
    """Raises ``FormatError`` unless as many rows were written as the old files have."""
    rows = sum(file.rows for file in folder.files)
    if written != rows:
        raise FormatError(
            f"{rows:,} rows were to be read, but {written:,} were written", Where(folder.name)
        )


def sidecars_of(place: Place, files: Sequence[str]) -> list[str]:
    """Returns the sidecars of files. Raises ``PathError`` if their folder cannot be listed."""
    places = Sidecars(place.filesystem)
    sidecars = [sidecar for file in files for sidecar in places.paths(place.path(file))]
    for file in files:
        places.check_listed(place.path(file))  # else its sidecar would be left behind
    return [sidecar.removeprefix(f"{place.root}/") for sidecar in sidecars]


def check_current(place: Place, job: str, files: Sequence[OldFile]) -> None:
    """Raises ``OvertakenError`` if an old file has changed or another commit replaces it.

    Commit logs are read first: a log that no longer exists has removed its files by then.
    """
    old = {file.path for file in files}
    for entry in commit_entries(place):
        if entry.job != job and not old.isdisjoint(entry.remove):
            raise OvertakenError(
                f"another write is replacing its files ({entry.name}); "
                "if it was interrupted, recover() finishes or undoes it"
            )
    changed = changed_since(place, files)
    if changed:
        raise OvertakenError(changed)
