"""Replaces objects on S3 by server-side copies: kept bytes are copied there, not downloaded.

::

    old object    ├──────────── kept ────────────┤ …
                     upload-part-copy, in parts       upload-part
    new object    ├──────────── kept ────────────┼── new bytes ──┤

Both the copy and the final write are conditional on the old object's entity tag. If another writer
has replaced the object meanwhile, that version stays. This needs boto3, the extra ``s3``, as
pyarrow's client has neither call. Without boto3, files are downloaded and uploaded whole.
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
from intarsia.io.atomic_replace import changed, check_unchanged
from intarsia.io.file_handle import Version
from intarsia.io.file_parts import Composed, Part
from intarsia.io.retry import TRIES
from intarsia.io.source import Source
from intarsia.pyarrow_internals import s3_options_of
from intarsia.threads import await_all

MIN_PART_BYTES = 5 * 1024 * 1024
"""Smallest part in bytes, other than the last one, that S3 accepts."""
COPY_BYTES = 1024 * 1024 * 1024
"""Largest part in bytes that the store copies in one request."""
UPLOAD_BYTES = 16 * 1024 * 1024
"""Bytes of one uploaded part."""
_READ_BYTES = 8 * 1024 * 1024
"""Bytes that are read from the old object at a time."""
_COMPARED_TAIL_BYTES = 64 * 1024
"""Bytes at the end that, with the length, identify an object."""
_PRESERVED_PROPERTIES = (
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
"""Properties of an object that its replacement keeps."""
_CONFLICT_CODES = {
    "PreconditionFailed",
    "ConditionalRequestConflict",
    "NoSuchKey",
    "404",
    "409",
    "412",
}
"""Error codes if another writer has replaced or deleted the object."""
_UNSUPPORTED_CODES = {"NotImplemented", "501"}
"""Error codes of stores that reject conditional writes."""


def replaced_by_store(
    path: str, source: Source, what: Composed, filesystem: pafs.FileSystem, version: Version
) -> bool:
    """Replaces an object on S3 with one made of its own bytes and new ones.

    ``version`` is the version that was opened, and ``source`` has its bytes. Returns False if the
    store cannot do this: it is not S3, or boto3 is not installed.

    Raises ``PathError`` if another writer replaced or deleted the object, or storage fails. Then
    nothing has changed, unless only the store's last answer was lost.
    """
    client = _client_of(filesystem)
    if client is None or version is None or len(version) != 2:
        return False
    tag = version[1].decode() if isinstance(version[1], bytes) else str(version[1])
    bucket, _, key = path.partition("/")
    exceptions: Any = importlib.import_module("botocore.exceptions")
    client_errors = exceptions.ClientError, exceptions.BotoCoreError
    try:
        _Object(client, bucket, key, tag, client_errors).replace(source, what)
    except exceptions.ClientError as error:
        if _code(error) in _CONFLICT_CODES:
            check_unchanged(path, filesystem, version)
            raise changed(path) from error  # the store saw a version that is gone already
        raise PathError(f"{path}: cannot be written: {error}") from error
    except exceptions.BotoCoreError as error:
        raise PathError(f"{path}: cannot be written: {error}") from error
    return True


def _client_of(filesystem: pafs.FileSystem) -> Any:
    """Returns a boto3 client, or None without boto3 or with settings that pyarrow hides."""
    if type(filesystem) is not pafs.S3FileSystem or importlib.util.find_spec("boto3") is None:
        return None
    options = s3_options_of(filesystem)
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
    """Returns an endpoint with its scheme, which pyarrow allows to be left out."""
    return endpoint if "://" in endpoint else f"{scheme}://{endpoint}"


class _Object:
    """The version of an object that has the entity tag ``tag``."""

    def __init__(self, client: Any, bucket: str, key: str, tag: str, errors: Any) -> None:
        """Binds the object. ``errors`` are the classes for responses and for lost requests."""
        self._client, self._tag = client, tag
        self._response_error, self._connection_error = errors
        self._address = {"Bucket": bucket, "Key": key}

    def replace(self, source: Source, composed: Composed) -> None:
        """Puts the composed object in place of the old one, unless another one is there."""
        self._source, self._composed = source, composed
        head = self._client.head_object(**self._address, IfMatch=self._tag)
        properties = {name: head[name] for name in _PRESERVED_PROPERTIES if head.get(name)}
        parts: Sequence[Part] = composed.parts
        copied_bytes = composed.prefix_bytes if composed.prefix_bytes >= MIN_PART_BYTES else 0
        if not copied_bytes:
            parts = ((0, composed.prefix_bytes), *parts)
        pieces = _pieces(source, parts)
        first = next(pieces, b"")
        second = next(pieces, None)
        if not copied_bytes and second is None:
            self._put(properties, first)
            return
        upload = self._client.create_multipart_upload(**self._address, **properties)["UploadId"]
        upload_address = {**self._address, "UploadId": upload}
        try:
            uploaded_parts = self._copied_parts(upload_address, copied_bytes)
            for piece in (first, second, *pieces) if second is not None else (first,):
                if piece:
                    number = len(uploaded_parts) + 1
                    part = self._client.upload_part(**upload_address, PartNumber=number, Body=piece)
                    uploaded_parts.append({"ETag": part["ETag"], "PartNumber": number})
            self._complete(upload_address, uploaded_parts)
        except BaseException:
            # The original error is raised, even if the upload cannot be aborted any more.
            with contextlib.suppress(self._response_error, self._connection_error):
                self._client.abort_multipart_upload(**upload_address)
            raise

    def _copied_parts(self, upload_address: dict[str, Any], length: int) -> list[dict[str, Any]]:
        """Lets the store copy the first ``length`` bytes, and returns the parts."""
        count = -(-length // COPY_BYTES)
        edges = [length * i // count for i in range(count + 1)] if count else []
        tasks = [
            partial(self._copy, upload_address, number + 1, edges[number], edges[number + 1])
            for number in range(count)
        ]
        return await_all(tasks)

    def _copy(
        self, upload_address: dict[str, Any], number: int, start: int, stop: int
    ) -> dict[str, Any]:
        response = self._client.upload_part_copy(
            **upload_address,
            PartNumber=number,
            CopySource=dict(self._address),
            CopySourceRange=f"bytes={start}-{stop - 1}",
            CopySourceIfMatch=self._tag,
        )
        return {"ETag": response["CopyPartResult"]["ETag"], "PartNumber": number}

    def _put(self, properties: dict[str, Any], body: bytes) -> None:
        self._put_in_place(self._client.put_object, **self._address, **properties, Body=body)

    def _complete(self, upload_address: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        self._put_in_place(
            self._client.complete_multipart_upload,
            **upload_address,
            MultipartUpload={"Parts": parts},
        )

    def _put_in_place(self, call: Any, **arguments: Any) -> None:
        """Puts the new object in place if the old one is there; else raises."""
        self._client.head_object(**self._address, IfMatch=self._tag)
        try:
            try:
                call(**arguments, IfMatch=self._tag)
            except self._response_error as error:
                if _code(error) not in _UNSUPPORTED_CODES:
                    raise
                call(**arguments)
        except (self._response_error, self._connection_error):
            if not self._is_in_place():
                raise

    def _is_in_place(self) -> bool:
        """True if the new object is in place: the answer to the call may have been lost."""
        kept_bytes, parts = self._composed.prefix_bytes, self._composed.parts
        last: Part = parts[-1] if parts else (0, kept_bytes)
        length = min(_length(last), _COMPARED_TAIL_BYTES)
        try:
            if isinstance(last, tuple):
                (end,) = self._source.read([(last[0] + last[1] - length, length)])
            else:
                end = memoryview(last)[-length:]
            head = self._client.head_object(**self._address)
            if head["ContentLength"] != kept_bytes + sum(map(_length, parts)):
                return False
            response = self._client.get_object(**self._address, Range=f"bytes=-{length}")
            return bool(response["Body"].read() == bytes(end))
        except (self._response_error, self._connection_error, OSError, PathError):
            return False


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _length(part: Part) -> int:
    return part[1] if isinstance(part, tuple) else len(part)


def _pieces(source: Source, parts: Sequence[Part]) -> Iterator[bytes]:
    """Yields the bytes of ``parts`` in pieces of ``UPLOAD_BYTES``, then the rest."""
    buffer = bytearray()
    for part in parts:
        length = _length(part)
        for at in range(0, length, _READ_BYTES):
            stop = min(at + _READ_BYTES, length)
            if isinstance(part, tuple):
                buffer += source.read([(part[0] + at, stop - at)])[0]
            else:
                buffer += part[at:stop]
            while len(buffer) >= UPLOAD_BYTES:
                yield bytes(buffer[:UPLOAD_BYTES])
                del buffer[:UPLOAD_BYTES]
    if buffer:
        yield bytes(buffer)
