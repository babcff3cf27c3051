"""Finds credentials in text and replaces them by ``***``.

A URI can contain credentials as user and password, and in its query. All text for people goes
through ``redacted``: errors, warnings, ``repr``, plans, pages and reports.

::

    s3://AKIA…:SECRET@bucket/x?region=eu-1&session_token=T   is shown as
    s3://***@bucket/x?region=eu-1&session_token=***

Only parameters known to be harmless keep their values, so a mistyped name hides its value as well.
These are handled as well: mistyped schemes (``s3x://``, ``s3:/``, ``s3//``), missing schemes,
percent-encoded URIs, and passwords with unescaped ``/`` or spaces. The container in
``abfs://container@account`` is no secret and stays.
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
"""``_LEAD``, or the form that a mistyped URI has within an absolute path."""
_NO_PORT = r"""(?!\d{1,5}(?:[/?#\s'",;:)]|$))(?=[^\s'"])"""
_ENCODED_URI = re.compile(rf"""{_SCHEME}%3A(?:%2F){{1,8}}[^\s'"&]{{0,2048}}""", re.IGNORECASE)
_PASSWORD = re.compile(
    rf"""(?P<lead>{_LOOSE_LEAD})(?P<secret>[^/\s'"@?#:]{{0,256}}:{_NO_PORT}[^@\n]{{0,512}}?"""
    r"""(?:@[^\s'"@?]{0,512}){0,8})(?P<end>@)"""
)
_UNTERMINATED_PASSWORD = re.compile(
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
"""User and password without a scheme, as in a local path made from a mistyped URI."""
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
"""Query parameters whose values are shown."""
_HARMLESS_VALUE = re.compile(r"[\w.:/*-]{0,128}")
_MIN_SECRET_CHARACTERS = 4
"""Shortest secret that is also replaced in the rest of a text. Shorter ones occur in words."""
_MAX_REPEATED_SECRETS = 32
"""Secrets that are also replaced in the rest of a text. Each takes a pass over it."""
_CREDENTIAL_MARKS = re.compile("[@?&]|%3a|%3A|://")
"""A text without any of these has no credentials."""


def redacted(text: str) -> str:
    """Returns ``text`` with the credentials of URIs replaced."""
    return _redacted(text)[0]


def _redacted(text: str) -> tuple[str, set[str]]:
    """Returns the redacted text and the set of secrets in it."""
    secrets: set[str] = set()
    if not _CREDENTIAL_MARKS.search(text):
        return text, secrets

    def user(match: re.Match[str]) -> str:
        secret = match["secret"]
        if secret == _HIDDEN:
            return match[0]
        _, _, password = secret.partition(":")
        secrets.update((secret, password))
        return f"{match['lead']}{_HIDDEN}{match['end']}"

    def parameter(match: re.Match[str]) -> str:
        secrets.add(match["value"])
        return f"{match['name']}={_HIDDEN}"

    def query(match: re.Match[str]) -> str:
        inner = match["query"].rstrip(":,.;)]}")
        shown = re.sub(r"[^&;?]+", lambda pair: _redacted_parameter(pair[0], secrets), inner)
        return match["lead"] + shown + match["query"][len(inner) :]

    def encoded(match: re.Match[str]) -> str:
        plain = unquote(match[0])
        shown, inner = _redacted(plain)
        secrets.update(inner)
        return match[0] if shown == plain else shown

    steps: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
        (_ENCODED_URI, encoded),
        (_PASSWORD, user),
        (_UNTERMINATED_PASSWORD, user),
        (_USER, user),
        (_BARE_PASSWORD, user),
        (_QUERY, query),
        (_PARAMETER, parameter),
    )
    for pattern, replace in steps:
        text = pattern.sub(replace, text)
    secrets.update([unquote(value) for value in secrets])
    return _with_secrets_replaced(text, secrets), secrets


def _redacted_parameter(text: str, secrets: set[str]) -> str:
    """Returns one query parameter as it is shown."""
    name, equals, value = text.partition("=")
    if not value.strip("="):
        secrets.add(text)
        return _HIDDEN
    if name.lower() in _HARMLESS and _HARMLESS_VALUE.fullmatch(value.replace(_HIDDEN + "@", "")):
        return text
    if name.lower() in _HARMLESS and _HARMLESS_VALUE.fullmatch(unquote(value)):
        return text
    secrets.add(value)
    return f"{name}{equals}{_HIDDEN}"


def _with_secrets_replaced(text: str, secrets: set[str]) -> str:
    """Returns ``text`` with known secrets replaced."""
    for secret in sorted(secrets, key=len, reverse=True)[:_MAX_REPEATED_SECRETS]:
        if len(secret) >= _MIN_SECRET_CHARACTERS and secret.strip("*"):
            text = text.replace(secret, _HIDDEN)
    return text


def redacted_in(value: Any) -> Any:
    """Returns a JSON value with all strings in it redacted."""
    match value:
        case str():
            return redacted(value)
        case dict():
            return {key: redacted_in(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(redacted_in, value))
    return value


def shown_redacted(kind: type[T]) -> type[T]:
    """Decorates a class: its ``repr``, ``str`` and ``to_dict`` show no credentials."""
    for name, redact in (("__repr__", redacted), ("__str__", redacted), ("to_dict", redacted_in)):
        method = vars(kind).get(name)
        if method is not None:
            setattr(kind, name, _shown_by(method, redact))
    return kind


def _shown_by(original: Callable[[Any], Any], redact: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def method(self: Any) -> Any:
        return redact(original(self))

    return method


def redacted_with(message: str, cause: BaseException | None) -> str:
    """Returns ``message`` redacted. Also redacts ``cause`` and its own causes in place.

    A traceback prints these errors, too. An error whose text cannot be changed is replaced in
    ``__cause__`` and ``__context__`` by one with its name and its redacted text.
    """
    shown, secrets = _redacted(message)
    pending, seen = [cause], {id(None)}
    while pending:
        error = pending.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        _redact(error, secrets)
        for name in ("__cause__", "__context__"):
            inner = getattr(error, name)
            if inner is not None and not _redact(inner, secrets):
                is_suppressed = error.__suppress_context__
                setattr(error, name, _stand_in(inner, secrets))
                error.__suppress_context__ = is_suppressed
            pending.append(getattr(error, name))
    return shown


def _clean(text: str, secrets: set[str]) -> str:
    shown, new_secrets = _redacted(text)
    secrets.update(new_secrets)
    return _with_secrets_replaced(shown, secrets)


def _stand_in(error: BaseException, secrets: set[str]) -> Exception:
    replacement = Exception(f"{type(error).__name__}: {_clean(str(error), secrets)}")
    return replacement.with_traceback(error.__traceback__)


def _redact(error: BaseException, secrets: set[str]) -> bool:
    """Redacts the text of one error in place. Returns False if that is not possible."""
    text = str(error)
    if _clean(text, secrets) == text:
        return True
    with contextlib.suppress(Exception):  # errors of other packages may refuse to be changed
        error.args = tuple(_clean(a, secrets) if isinstance(a, str) else a for a in error.args)
    if isinstance(error, OSError):
        for name in ("filename", "filename2", "strerror"):
            value = getattr(error, name)
            if isinstance(value, str):
                setattr(error, name, _clean(value, secrets))
    text = str(error)
    return _clean(text, secrets) == text
