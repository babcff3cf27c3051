"""Credentials in text: found, and replaced by ``***``.

A URI can carry them as user and password, and in its query. Text that leaves the package for a
person goes through ``redacted``: errors, warnings, ``repr``, plans, pages and reports.

::

    s3://AKIA…:SECRET@bucket/x?region=eu-1&session_token=T   is shown as
    s3://***@bucket/x?region=eu-1&session_token=***

Only parameters known to be harmless keep their values, so that a mistyped name hides its value as
well. Mistyped schemes (``s3x://``, ``s3:/``, ``s3//``), missing schemes, percent-encoded URIs and
passwords with unescaped ``/`` or spaces are covered. The container in ``abfs://container@account``
is no secret and stays.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote

T = TypeVar("T")
_HIDDEN = "***"
_SCHEME = r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,31}"
_STORES = r"(?:s3[an]?|gc?s|abfss?|wasbs?|azure|az|adl|https?|hdfs|webhdfs|viewfs|s?ftp|smb)"
_LEAD = rf"(?:{_SCHEME}(?::/{{1,8}}|[;.,\\]:?[/\\]{{1,8}})|\b{_STORES}(?::|/{{2,8}}))"
_LOOSE_LEAD = rf"(?:{_LEAD}|\b{_STORES}/)"
"""As ``_LEAD``, or what a mistyped one becomes in an absolute path."""
_NO_PORT = r"""(?!\d{1,5}(?:[/?#\s'",;:)]|$))(?=[^\s'"])"""
_ENCODED = re.compile(rf"""{_SCHEME}%3A(?:%2F){{1,8}}[^\s'"&]{{0,2048}}""", re.IGNORECASE)
_PASSWORD = re.compile(
    rf"""(?P<lead>{_LOOSE_LEAD})(?P<secret>[^/\s'"@?#:]{{0,256}}:{_NO_PORT}[^@\n]{{0,512}}?"""
    r"""(?:@[^\s'"@?]{0,512}){0,8})(?P<end>@)"""
)
_UNENDED = re.compile(
    rf"""(?P<lead>(?!file:){_LEAD})(?P<secret>[^/\s'"@?#:]{{0,256}}:{_NO_PORT}"""
    r"""[^\s'"/]{1,512})(?P<end>)"""
)
_USER = re.compile(
    rf"""(?P<lead>(?!abfss?:|wasbs?:|\*){_LEAD})(?P<secret>[^/\s'"@?#:*]{{1,512}})(?P<end>@)"""
)
_BARE_PASSWORD = re.compile(
    r"""(?P<lead>(?:^|[/\s'"]))(?P<secret>[^/\s'"@:*?]{1,256}:[^/\s'"@]{1,512})(?P<end>@)"""
    r"""(?=[\w.-])"""
)
"""User and password without a scheme, as where a local path was made of a mistyped URI."""
_QUERY = re.compile(rf"""(?P<lead>{_LEAD}[^\s'"?]{{0,2048}}\?)(?P<query>[^\s'"]*)""")
_PARAMETER = re.compile(
    r"""(?<=[?&;#])(?P<name>[\w.-]{0,64}?(?:secret|token|passw|pwd|sig|sas|credential|key"""
    r"""|auth|session|access)[\w.-]{0,64})=(?P<value>[^&;\s'"#]*[^&;\s'"#:,.)\]}])""",
    re.IGNORECASE,
)
_HARMLESS = {
    "allow_bucket_creation",
    "allow_bucket_deletion",
    "anonymous",
    "background_writes",
    "check_directory_existence_before_creation",
    "endpoint_override",
    "force_virtual_addressing",
    "region",
    "scheme",
    "versionid",
}
"""Parameters whose values are shown."""
_HARMLESS_VALUE = re.compile(r"[\w.:/*-]{0,128}")
_LEAST_PIECE = 4
"""Characters of a secret that is looked for in the rest of a text; shorter ones are in words."""
_MOST_PIECES = 32
"""Secrets that are looked for in the rest of a text: each takes a pass over it."""
_MARKS = ("@", "?", "&", "%3a", "%3A", "://")
"""A text without any of these carries no credentials."""


def redacted(text: str) -> str:
    """Returns ``text`` without the credentials of URIs in it."""
    return _redacted(text)[0]


def _redacted(text: str) -> tuple[str, set[str]]:
    """Returns the redacted text, and the secrets that were found."""
    pieces: set[str] = set()
    if not any(mark in text for mark in _MARKS):
        return text, pieces

    def user(match: re.Match[str]) -> str:
        secret = match["secret"]
        if secret == _HIDDEN:
            return match[0]
        _, _, password = secret.partition(":")
        pieces.update((secret, password))
        return f"{match['lead']}{_HIDDEN}{match['end']}"

    def parameter(match: re.Match[str]) -> str:
        pieces.add(match["value"])
        return f"{match['name']}={_HIDDEN}"

    def query(match: re.Match[str]) -> str:
        found = match["query"].rstrip(":,.;)]}")
        shown = re.sub(r"[^&;?]+", lambda one: _pair(one[0], pieces), found)
        return match["lead"] + shown + match["query"][len(found) :]

    def encoded(match: re.Match[str]) -> str:
        plain = unquote(match[0])
        shown, found = _redacted(plain)
        pieces.update(found)
        return match[0] if shown == plain else shown

    steps: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
        (_ENCODED, encoded),
        (_PASSWORD, user),
        (_UNENDED, user),
        (_USER, user),
        (_BARE_PASSWORD, user),
        (_QUERY, query),
        (_PARAMETER, parameter),
    )
    for pattern, replace in steps:
        text = pattern.sub(replace, text)
    pieces.update([unquote(piece) for piece in pieces])
    return _without(text, pieces), pieces


def _pair(text: str, pieces: set[str]) -> str:
    """Returns one parameter of a query as it is shown."""
    name, equals, value = text.partition("=")
    if not value.strip("="):
        pieces.add(text)
        return _HIDDEN
    if name.lower() in _HARMLESS and _HARMLESS_VALUE.fullmatch(value.replace(_HIDDEN + "@", "")):
        return text
    if name.lower() in _HARMLESS and _HARMLESS_VALUE.fullmatch(unquote(value)):
        return text
    pieces.add(value)
    return f"{name}{equals}{_HIDDEN}"


def _without(text: str, pieces: set[str]) -> str:
    """Returns ``text`` without secrets that were found elsewhere."""
    for piece in sorted(pieces, key=len, reverse=True)[:_MOST_PIECES]:
        if len(piece) >= _LEAST_PIECE and piece.strip("*"):
            text = text.replace(piece, _HIDDEN)
    return text


def redacted_in(value: Any) -> Any:
    """Returns a JSON value with the strings in it redacted."""
    match value:
        case str():
            return redacted(value)
        case dict():
            return {key: redacted_in(one) for key, one in value.items()}
        case list() | tuple():
            return type(value)(map(redacted_in, value))
    return value


def shown_redacted(kind: type[T]) -> type[T]:
    """Decorates a class: its ``repr``, ``str`` and ``to_dict`` show no credentials."""
    for name, shown in (("__repr__", redacted), ("__str__", redacted), ("to_dict", redacted_in)):
        own = vars(kind).get(name)
        if own is not None:
            setattr(kind, name, _shown_by(own, shown))
    return kind


def _shown_by(own: Callable[[Any], Any], shown: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(own)
    def method(self: Any) -> Any:
        return shown(own(self))

    return method


def redacted_with(message: str, cause: BaseException | None) -> str:
    """Returns ``message`` redacted, and redacts ``cause`` and all that led to it in place.

    A traceback prints these errors as well. An error whose text cannot be changed is replaced by
    one that has its name and its redacted text, wherever another error refers to it.
    """
    shown, pieces = _redacted(message)
    pending, seen = [cause], {id(None)}
    while pending:
        error = pending.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        _redact(error, pieces)
        for name in ("__cause__", "__context__"):
            inner = getattr(error, name)
            if inner is not None and not _redact(inner, pieces):
                is_suppressed = error.__suppress_context__
                setattr(error, name, _stand_in(inner, pieces))
                error.__suppress_context__ = is_suppressed
            pending.append(getattr(error, name))
    return shown


def _clean(text: str, pieces: set[str]) -> str:
    shown, found = _redacted(text)
    pieces.update(found)
    return _without(shown, pieces)


def _stand_in(error: BaseException, pieces: set[str]) -> Exception:
    made = Exception(f"{type(error).__name__}: {_clean(str(error), pieces)}")
    return made.with_traceback(error.__traceback__)


def _redact(error: BaseException, pieces: set[str]) -> bool:
    """Redacts the text of one error in place. Returns False where that cannot be done."""
    text = str(error)
    if _clean(text, pieces) == text:
        return True
    with contextlib.suppress(Exception):  # errors of other packages may refuse to be changed
        error.args = tuple(_clean(a, pieces) if isinstance(a, str) else a for a in error.args)
    if isinstance(error, OSError):
        for name in ("filename", "filename2", "strerror"):
            value = getattr(error, name)
            if isinstance(value, str):
                setattr(error, name, _clean(value, pieces))
    text = str(error)
    return _clean(text, pieces) == text
