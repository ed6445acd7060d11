"""Signatures: whoever can write the checkpoint directory cannot put anything into it.

What it is: a line behind the content of each blob, the HMAC-SHA-256 of job id, name and content
under a key of the user's.  It is made as a blob is written and verified as it is read, before
anybody parses it, let alone unpickles.  So it is the same whatever the format of the content is.
State files are not signed themselves: the manifests that name them hold their SHA-256.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from millstream.configuration import options
from millstream.errors import ConfigurationError, SignatureError

#: The blob that says which job it is; it is signed for no job, being read first.
IDENTITY: Final = "job.json"
#: Names that are not signed: Spark writes its logs itself, and they hold no pickles; what state
#: files must be is said by the manifests.
_UNSIGNED: Final = ("spark/", "state/")
_LINE: Final = b"\nmillstream-hmac-sha256 "
_SIGNED: Final = re.compile(rb"\nmillstream-hmac-sha256 [0-9a-f]{64}\n\Z")
_LINE_LENGTH: Final = len(_LINE) + 64 + 1
_LEAST_KEY: Final = 32


class Seal(Protocol):
    """What happens to a blob as it is written and read."""

    def bind(self, job_id: str) -> None:
        """Take the names, from now on, for those of this job."""

    def close(self, name: str, content: bytes) -> bytes:
        """What is stored."""

    def open(self, name: str, stored: bytes, location: str) -> bytes:
        """The content of what was stored.

        Raises:
            SignatureError: it is not to be trusted.
        """


class NoSeal:
    """Blobs are stored as they are, and signed ones are refused."""

    def bind(self, job_id: str) -> None:
        """Nothing depends on the job."""

    def close(self, name: str, content: bytes) -> bytes:
        """The content."""
        del name
        return content

    def open(self, name: str, stored: bytes, location: str) -> bytes:
        """The content; raises SignatureError if it is signed: there must be a reason for that."""
        if is_sealed(stored) and not name.startswith(_UNSIGNED):
            message = (
                f"{name} in {location} is signed. Give the key with which it was written: set"
                f" {options.CHECKPOINT_HMAC_KEY_FILE.key}, or --hmac-key-file on the command line"
            )
            raise SignatureError(message)
        return stored


@dataclass(slots=True)
class HmacSeal:
    """Blobs are signed with a key from a file, which each process reads for itself.

    The key does not travel: the plans of epochs, in which storages do, are kept by Spark.
    """

    key_file: str
    _job_id: str | None = None
    _key: bytes | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> tuple[str, str | None]:
        """Without the key."""
        return self.key_file, self._job_id

    def __setstate__(self, state: tuple[str, str | None]) -> None:
        """Read the key again."""
        self.key_file, self._job_id = state
        self._key = None

    def bind(self, job_id: str) -> None:
        """Sign and verify for this job."""
        self._job_id = job_id

    def close(self, name: str, content: bytes) -> bytes:
        """The content, and its signature behind it."""
        return content if name.startswith(_UNSIGNED) else content + self._line(name, content)

    def open(self, name: str, stored: bytes, location: str) -> bytes:
        """The content, if its signature is that of this job, name and content."""
        if name.startswith(_UNSIGNED):
            return stored
        if not is_sealed(stored):
            message = (
                f"{name} in {location} is not signed, but"
                f" {options.CHECKPOINT_HMAC_KEY_FILE.key} is set. If the directory was written"
                " without a key, and nobody but you could write to it, sign it:"
                f" `millstream checkpoints {location} sign --hmac-key-file {self.key_file}`"
            )
            raise SignatureError(message)
        content = stored[:-_LINE_LENGTH]
        if not hmac.compare_digest(self._line(name, content), stored[-_LINE_LENGTH:]):
            message = (
                f"{name} in {location} was not signed with the key in {self.key_file} for this"
                " job: it was written with another key, is damaged, or was put there by somebody"
                " else. Nothing of it was used. Give the right key, or put the file back from a"
                " copy that you trust"
            )
            raise SignatureError(message)
        return content

    def read_key(self) -> bytes:
        """The key, read once.

        Raises:
            ConfigurationError: the file is missing, in reach of others, or too short.
        """
        if self._key is None:
            self._key = _read_key(Path(self.key_file))
        return self._key

    def _line(self, name: str, content: bytes) -> bytes:
        job = "" if name == IDENTITY else self._job_id
        if job is None:
            message = f"{name} cannot be verified before {IDENTITY} has said whose job it is"
            raise SignatureError(message)
        # Neither ids nor names hold a zero byte, so nobody can move a border.
        mac = hmac.new(self.read_key(), f"{job}\0{name}\0".encode(), "sha256")
        mac.update(content)
        return _LINE + mac.hexdigest().encode() + b"\n"


def seal_of(key_file: str) -> Seal:
    """The seal of a key file; empty: that of directories without signatures."""
    return HmacSeal(key_file) if key_file else NoSeal()


def is_sealed(stored: bytes) -> bool:
    """Whether a stored blob is signed, by whomever."""
    return _SIGNED.search(stored, max(0, len(stored) - _LINE_LENGTH)) is not None


def _read_key(path: Path) -> bytes:
    setting = options.CHECKPOINT_HMAC_KEY_FILE.key
    make = f"`(umask 077; openssl rand -hex 32 > {path})` makes one"
    try:
        found = path.stat()
        key = path.read_bytes().strip()
    except OSError as error:
        message = (
            f"{setting}: {path} cannot be read on this machine ({error.strerror}); driver and"
            f" workers need it at the same place. {make}"
        )
        raise ConfigurationError(message) from error
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (os.geteuid(), 0) or mode & 0o077:
        message = (
            f"{setting}: {path} is in reach of other users (mode {mode:04o}, owner"
            f" {found.st_uid}), so it may be known to them. Make a new key that only you can read:"
            f" {make}"
        )
        raise ConfigurationError(message)
    if len(key) < _LEAST_KEY:
        message = (
            f"{setting}: the key in {path} has {len(key)} bytes, it needs {_LEAST_KEY} at least."
            f" {make}"
        )
        raise ConfigurationError(message)
    return key
