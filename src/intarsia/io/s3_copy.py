"""Objects of S3 replaced by the store itself: what is kept of one is copied there, not downloaded.

::

    old object    ├──────────── kept ────────────┤ …
                     upload-part-copy, in parts       upload-part
    new object    ├──────────── kept ────────────┼── new bytes ──┤

The copy is asked for by the old object's entity tag, and so is putting the new one in place: where
another writer has replaced the object meanwhile, it stays. That takes boto3, the extra ``s3``:
pyarrow's client has neither call. Without it, files are downloaded and uploaded whole.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.io.file_handle import Version
from intarsia.io.file_parts import Composed, Part
from intarsia.io.retry import TRIES
from intarsia.io.source import Source
from intarsia.threads import all_awaited

LEAST_PART = 5 * 1024 * 1024
"""Bytes of any part but the last, says S3."""
COPY_BYTES = 1024 * 1024 * 1024
UPLOAD_BYTES = 16 * 1024 * 1024
_BLOCK = 8 * 1024 * 1024
_END_BYTES = 64 * 1024
"""By so many, and its length, an object is known again."""
_CARRIED = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Metadata",
    "SSEKMSKeyId",
    "ServerSideEncryption",
    "StorageClass",
)
"""What an object has beside its bytes, and its successor is to have."""
_CHANGED = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "404", "409", "412"}
_UNKNOWN = {"NotImplemented", "501"}


def replaced_by_store(
    path: str, source: Source, what: Composed, filesystem: pafs.FileSystem, version: Version
) -> bool:
    """Replace an object on S3 with one composed of its bytes and new ones; False where that cannot
    be done by the store: it is another one, or boto3 is not there.

    ``version`` is the object that was opened, and ``source`` its bytes. Raises ``PathError`` where
    another one is there by now, or storage fails; then nothing has changed, unless the store's last
    answer was lost.
    """
    client = _client_of(filesystem)
    if client is None or version is None or len(version) != 2:
        return False
    tag = version[1].decode() if isinstance(version[1], bytes) else str(version[1])
    bucket, _, key = path.partition("/")
    errors: Any = importlib.import_module("botocore.exceptions")
    known = errors.ClientError, errors.BotoCoreError
    try:
        _Object(client, bucket, key, tag, known).replace(source, what)
    except errors.ClientError as error:
        if _code(error) in _CHANGED:
            message = f"{path}: another writer changed the file; it was left as it is"
            raise PathError(message) from error
        raise PathError(f"{path}: cannot be written: {error}") from error
    except errors.BotoCoreError as error:
        raise PathError(f"{path}: cannot be written: {error}") from error
    return True


def _client_of(filesystem: pafs.FileSystem) -> Any:
    """A client for the store that ``filesystem`` is of; None where it needs more than is known."""
    if type(filesystem) is not pafs.S3FileSystem or importlib.util.find_spec("boto3") is None:
        return None
    options = filesystem.__reduce__()[1][0]
    if options["role_arn"] or options["proxy_options"]["host"]:
        return None
    boto3: Any = importlib.import_module("boto3")
    botocore: Any = importlib.import_module("botocore")
    config: Any = importlib.import_module("botocore.config").Config
    settings: dict[str, Any] = {
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "retries": {"mode": "standard", "total_max_attempts": TRIES},
    }
    endpoint = options["endpoint_override"]
    if endpoint and not options["force_virtual_addressing"]:
        settings["s3"] = {"addressing_style": "path"}
    if options["anonymous"]:
        settings["signature_version"] = botocore.UNSIGNED
    return boto3.client(
        "s3",
        region_name=options["region"] or None,
        endpoint_url=_url(endpoint, options["scheme"]) if endpoint else None,
        aws_access_key_id=options["access_key"] or None,
        aws_secret_access_key=options["secret_key"] or None,
        aws_session_token=options["session_token"] or None,
        verify=options["tls_ca_file_path"] or None,
        config=config(**settings),
    )


def _url(endpoint: str, scheme: str) -> str:
    """pyarrow takes an endpoint with its scheme and without."""
    return endpoint if "://" in endpoint else f"{scheme}://{endpoint}"


class _Object:
    """An object of a bucket, as it is under an entity tag."""

    def __init__(self, client: Any, bucket: str, key: str, tag: str, errors: Any) -> None:
        """``errors``: what the client raises of the store's answers, and of their lack."""
        self._client, self._tag = client, tag
        self._answered, self._lost = errors
        self._at = {"Bucket": bucket, "Key": key}

    def replace(self, source: Source, what: Composed) -> None:
        """Put what is composed in its place, unless another object is there."""
        self._source, self._what = source, what
        head = self._client.head_object(**self._at, IfMatch=self._tag)
        carried = {name: head[name] for name in _CARRIED if head.get(name)}
        parts: Sequence[Part] = what.parts
        copied = what.kept if what.kept >= LEAST_PART else 0
        if not copied:
            parts = ((0, what.kept), *parts)
        pieces = _pieces(source, parts)
        first = next(pieces, b"")
        second = next(pieces, None)
        if not copied and second is None:
            self._put(carried, first)
            return
        upload = self._client.create_multipart_upload(**self._at, **carried)["UploadId"]
        at = {**self._at, "UploadId": upload}
        try:
            done = self._copied(at, copied)
            for piece in (first, second, *pieces) if second is not None else (first,):
                if piece:
                    number = len(done) + 1
                    part = self._client.upload_part(**at, PartNumber=number, Body=piece)
                    done.append({"ETag": part["ETag"], "PartNumber": number})
            self._complete(at, done)
        except BaseException:
            # What went wrong is told, not that there is no upload any more, as after its end.
            with contextlib.suppress(self._answered, self._lost):
                self._client.abort_multipart_upload(**at)
            raise

    def _copied(self, at: dict[str, Any], length: int) -> list[dict[str, Any]]:
        """The first ``length`` bytes as parts, which the store copies."""
        count = -(-length // COPY_BYTES)
        edges = [length * i // count for i in range(count + 1)] if count else []
        tasks = [
            partial(self._copy, at, number + 1, edges[number], edges[number + 1])
            for number in range(count)
        ]
        return all_awaited(tasks)

    def _copy(self, at: dict[str, Any], number: int, start: int, stop: int) -> dict[str, Any]:
        found = self._client.upload_part_copy(
            **at,
            PartNumber=number,
            CopySource=dict(self._at),
            CopySourceRange=f"bytes={start}-{stop - 1}",
            CopySourceIfMatch=self._tag,
        )
        return {"ETag": found["CopyPartResult"]["ETag"], "PartNumber": number}

    def _put(self, carried: dict[str, Any], body: bytes) -> None:
        self._in_place(self._client.put_object, **self._at, **carried, Body=body)

    def _complete(self, at: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        self._in_place(
            self._client.complete_multipart_upload, **at, MultipartUpload={"Parts": parts}
        )

    def _in_place(self, call: Any, **arguments: Any) -> None:
        """What puts the new object in place; a store that ignores conditions is asked just before.

        One that refuses them is asked only so: between the two another writer may come in.
        """
        self._client.head_object(**self._at, IfMatch=self._tag)
        try:
            try:
                call(**arguments, IfMatch=self._tag)
            except self._answered as error:
                if _code(error) not in _UNKNOWN:
                    raise
                call(**arguments)
        except (self._answered, self._lost):
            if not self._is_in_place():
                raise

    def _is_in_place(self) -> bool:
        """Is the new object there? An answer may be lost, and the call then made once more."""
        kept, parts = self._what.kept, self._what.parts
        last: Part = parts[-1] if parts else (0, kept)
        length = min(_length(last), _END_BYTES)
        try:
            if isinstance(last, tuple):
                (end,) = self._source.read([(last[0] + last[1] - length, length)])
            else:
                end = memoryview(last)[-length:]
            head = self._client.head_object(**self._at)
            if head["ContentLength"] != kept + sum(map(_length, parts)):
                return False
            found = self._client.get_object(**self._at, Range=f"bytes=-{length}")
            return bool(found["Body"].read() == bytes(end))
        except (self._answered, self._lost, OSError, PathError):
            return False


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _length(part: Part) -> int:
    return part[1] if isinstance(part, tuple) else len(part)


def _pieces(source: Source, parts: Sequence[Part]) -> Iterator[bytes]:
    """The bytes of ``parts``, ``UPLOAD_BYTES`` at a time, and the rest."""
    held = bytearray()
    for part in parts:
        length = _length(part)
        for at in range(0, length, _BLOCK):
            stop = min(at + _BLOCK, length)
            if isinstance(part, tuple):
                held += source.read([(part[0] + at, stop - at)])[0]
            else:
                held += part[at:stop]
            while len(held) >= UPLOAD_BYTES:
                yield bytes(held[:UPLOAD_BYTES])
                del held[:UPLOAD_BYTES]
    if held:
        yield bytes(held)
