"""Entries of Delta logs that deltalake does not write: deletion vectors, new names, features."""

import base64
import json
import struct
from pathlib import Path

import pyroaring

_ZEROMQ = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_PYTHON = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def actions(path):
    """All actions of a table's log, in order."""
    logs = sorted(Path(path, "_delta_log").glob("*.json"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def commit(path, *new):
    """Appends a version with these actions to a table's log."""
    log = Path(path, "_delta_log")
    version = len([*log.glob("*.json")])
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, new)))


def delete_rows(path, file, rows):
    """Deletes rows of a file by a deletion vector. ``file`` is its path in the log."""
    added = [one["add"] for one in actions(path) if one.get("add", {}).get("path") == file][-1]
    data = struct.pack("<IQI", 1681511377, 1, 0) + pyroaring.BitMap(rows).serialize()
    data += b"\0" * (-len(data) % 4)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": _z85(data),
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }
    remove = {"path": file, "deletionTimestamp": 1, "dataChange": True}
    if "deletionVector" in added:
        remove["deletionVector"] = added["deletionVector"]
    commit(path, {"remove": remove}, {"add": {**added, "deletionVector": vector}})


def change_schema(path, change, features=(), **configuration):
    """Commits the table's metadata after ``change(fields)``, which edits the schema's fields."""
    metadata = [one["metaData"] for one in actions(path) if "metaData" in one][-1]
    schema = json.loads(metadata["schemaString"])
    change(schema["fields"])
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"].update(configuration)
    new = [{"metaData": metadata}]
    if features:
        names = {"readerFeatures": [*features], "writerFeatures": [*features]}
        new.append({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **names}})
    commit(path, *new)


def _z85(data):
    """Encodes in base 85 with ZeroMQ's alphabet."""
    return base64.b85encode(data).decode().translate(str.maketrans(_PYTHON, _ZEROMQ))
