"""`Secret`: a password, token or key that is shown nowhere."""

from __future__ import annotations

import errno
import hmac
import os
from pathlib import Path
from typing import Final, NoReturn, Self

from aioproducer._shown_values import in_any_state
from aioproducer.errors import ConfigurationError, TokenError
from aioproducer.security._cleared_frames import clears_frames

NOT_UNICODE: Final = "is not valid Unicode: it has lone surrogates, which stand for bytes that are not UTF-8"
_HIDDEN: Final = "<hidden>"
_TEXT: Final = "text"
_ENV: Final = "environment variable"
_FILE: Final = "file"
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO, errno.ESTALE})


class Secret:
    """Text that `repr`, `str`, `format`, JSON and the messages of errors do not show.

    A secret that comes from an environment variable or a file is read again each time it is needed, so that a new
    value needs no restart, and is pickled by its name. A secret that was given as text is not pickled.

    Args:
        text: the secret itself. Prefer `from_env` or `from_file`, which keep it out of the program.

    Raises:
        TypeError: something else than a str.
        ConfigurationError: the text is not valid Unicode: it has lone surrogates, which UTF-8 has no bytes for.
    """

    __slots__ = ("_source", "_value")

    _source: str
    _value: str  # the text, or the name of the variable or file

    @clears_frames
    def __init__(self, text: str) -> None:
        """Keep the text."""
        if not isinstance(text, str):
            raise TypeError(f"a Secret is made of a str, not {type(text).__name__}")
        if not is_unicode(text):
            raise ConfigurationError(f"the text of a Secret {NOT_UNICODE}")
        self._source, self._value = _TEXT, text

    @classmethod
    @clears_frames
    def from_env(cls, name: str) -> Self:
        """Return the secret that an environment variable holds whenever it is needed.

        Args:
            name: of the variable; it need not be set yet.
        """
        return cls._of(_ENV, name)

    @classmethod
    @clears_frames
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return the secret that a file holds whenever it is needed.

        The file is UTF-8; a byte order mark at its beginning and the line break at its end are no part of the secret.

        Args:
            path: of the file; it need not exist yet.
        """
        return cls._of(_FILE, os.fspath(path))

    @classmethod
    def _of(cls, source: str, value: str) -> Self:
        if not isinstance(value, str):
            raise TypeError(f"the name of the {source} of a Secret must be a str, not {type(value).__name__}")
        secret = cls.__new__(cls)
        secret._source, secret._value = source, value  # noqa: SLF001  # its own class
        return secret

    @clears_frames
    def reveal(self) -> str:
        """Return the text.

        Raises:
            ConfigurationError: the variable is not set, the file cannot be read, or either is not UTF-8.
        """
        if self._source == _TEXT:
            return self._value
        if self._source == _ENV:
            return self._read_variable()
        return self._read_file()

    def _read_variable(self) -> str:
        text = os.environ.get(self._value)
        if text is None:
            raise ConfigurationError(f"the environment variable {self._value!r} of a Secret is not set")
        if not is_unicode(text):
            raise ConfigurationError(f"the environment variable {self._value!r} of a Secret {NOT_UNICODE}")
        return text

    def _read_file(self) -> str:
        try:
            content = Path(self._value).read_bytes()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            text = f"the file {self._value!r} of a Secret cannot be read: {reason}"
            raise ConfigurationError(text, retriable=is_passing(error)) from None
        found = _decoded(content)
        if found is None:
            raise ConfigurationError(f"the file {self._value!r} of a Secret is not UTF-8")
        return found.removesuffix("\n").removesuffix("\r")

    @in_any_state
    def __repr__(self) -> str:
        """Return where the secret comes from, never what it is."""
        return f"Secret({_HIDDEN})" if self._source == _TEXT else f"Secret({_HIDDEN}, {self._source} {self._value!r})"

    def __str__(self) -> str:
        """Return `<hidden>`."""
        return _HIDDEN

    def __format__(self, spec: str) -> str:
        """Return `<hidden>`, for any format."""
        return _HIDDEN

    def __eq__(self, other: object) -> bool:
        """Tell whether the other secret has the same text, variable or file; secrets are not read for this."""
        if not isinstance(other, Secret):
            return NotImplemented
        return self._source == other._source and hmac.compare_digest(_bytes_of(self), _bytes_of(other))

    def __hash__(self) -> int:
        """Return a number that differs from process to process."""
        return hash((self._source, self._value))

    def __copy__(self) -> Self:
        """Return the secret itself, which does not change."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return the secret itself, which does not change."""
        return self

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Pickle the name of the variable or file.

        Raises:
            TypeError: the secret was given as text, which would be readable in the pickle.
        """
        if self._source == _TEXT:
            raise TypeError(
                "a Secret that was given as text is not pickled, since everyone could read it there: use "
                "Secret.from_env or Secret.from_file, which are pickled by name"
            )
        return (Secret.from_env if self._source == _ENV else Secret.from_file), (self._value,)

    def __getstate__(self) -> NoReturn:
        """Refuse: `vars` and other ways to copy an object's state would show the text."""
        raise TypeError("a Secret has no state to show")


def is_passing(error: BaseException) -> bool:
    """Whether the system refused a file for a reason that may be over soon; a file that is missing is for good."""
    return isinstance(error, OSError) and error.errno in _PASSING


def revealed_if_there(secret: Secret) -> str | None:
    """Return the text; None if the variable is not set yet, or the file cannot be read."""
    try:
        return secret.reveal()
    except ConfigurationError:
        return None


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can write the text: Python gives surrogates for the bytes of a variable that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:  # its repr shows the text
        return False
    return True


def _decoded(content: bytes) -> str | None:
    try:
        return content.decode("utf-8-sig")  # editors of Windows begin a file with a byte order mark
    except UnicodeDecodeError:  # its repr shows the bytes
        return None


def is_set_variable(secret: Secret) -> bool:
    """Whether the secret is that of an environment variable that is set."""
    return secret._source == _ENV and secret._value in os.environ  # noqa: SLF001  # its own class


def _bytes_of(secret: Secret) -> bytes:
    # The name of a file may have surrogates.
    return secret._value.encode(errors="surrogatepass")  # noqa: SLF001  # its own class


def is_read_later(secret: Secret) -> bool:
    """Whether the secret is that of a variable or file, which need not be there yet, and may change."""
    return secret._source != _TEXT  # noqa: SLF001  # its own class


def secret_of(name: str, text: str) -> Secret:
    """Return the secret of a text; raise ConfigurationError, which names the option, if it is not valid Unicode."""
    if not is_unicode(text):
        raise ConfigurationError(f"{name} {NOT_UNICODE}", option=name)
    return Secret(text)


def check_variable(name: str, secret: Secret) -> None:
    """Raise ConfigurationError, which names the option, if the secret's variable is set, and not valid Unicode.

    A file is left alone: what is behind its name may be read once only.
    """
    if not is_set_variable(secret):
        return
    try:
        secret.reveal()
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}", option=name) from None


def revealed_argument(name: str, secret: Secret) -> str:
    """Return the text of a secret now, or raise TokenError."""
    try:
        text = secret.reveal()
    except ConfigurationError as error:
        raise TokenError(f"{name} cannot be read: {error}", retriable=error.retriable) from None
    if not text:
        raise TokenError(f"{name} is empty: {secret!r}", retriable=False)
    return text
