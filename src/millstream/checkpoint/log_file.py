"""One file of the manifest log: its form, its checksum, and what it says of other files.

What it is: ``encode`` and ``decode``.  The file is one JSON object.  Its last member, ``checksum``,
is the SHA-256 of the bytes of the file up to the comma before it, closed with ``}``.  A
``checkpoint`` has the JSON form of its manifest (``manifest``), or what has changed in it since
that of another version, the base (``changes``, ``base``); if that is long it is deflated
(``packed``, in base64).

``base`` has the checksum of the base beside its version, so a chain of files cannot be put together
of parts of different histories, and whoever vouches for the last one vouches for all.

What it is not: the log (``checkpoint/manifest_log.py``) or what is in a manifest
(``checkpoint/manifest_codec.py``).

Read next: ``checkpoint/manifest_log.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Final

from millstream.checkpoint.model import FORMAT_VERSION, require_format
from millstream.errors import CorruptCheckpointError

__all__ = ["Base", "LogFile", "corrupt", "decode", "encode"]

_CHECKSUM: Final = ',"checksum":"'
#: Content of more characters is deflated.
_PACK_FROM: Final = 4096
#: zlib's fastest: manifests repeat themselves so much that others bring little.
_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class Base:
    """The version whose manifest a file says the changes of."""

    version: int
    checksum: str


@dataclass(frozen=True, slots=True)
class LogFile:
    """What a file of the log says."""

    version: int
    generation: int
    #: "host:pid" of the writer, for messages.
    owner: str
    #: The manifest, or what has changed in it since ``base``; None for an ``open``.
    content: dict[str, Any] | None = None
    base: Base | None = None
    #: The oldest version that is still a checkpoint; older ones are there as bases only.
    oldest: int = 0
    #: Of the file; set when it was encoded or decoded.
    checksum: str = ""


def encode(
    version: int,
    generation: int,
    content: dict[str, Any] | None = None,
    *,
    base: Base | None = None,
    oldest: int = 0,
) -> tuple[bytes, str]:
    """The bytes of a file of this process, and their checksum.

    Args:
        version: of the log.
        generation: of the writer.
        content: the manifest as JSON, or its changes since ``base``; None for an ``open``.
        base: None: ``content`` stands alone.
        oldest: the oldest version that stays a checkpoint.
    """
    value: dict[str, object] = {
        "format_version": FORMAT_VERSION,
        "version": version,
        "generation": generation,
        "kind": "open" if content is None else "checkpoint",
        "owner": f"{socket.gethostname()}:{os.getpid()}",
    }
    if content is not None:
        value["oldest"] = oldest
        if base is not None:
            value["base"] = {"version": base.version, "checksum": base.checksum}
        text = json.dumps(content, separators=(",", ":"))
        if len(text) > _PACK_FROM:
            value["packed"] = b64encode(zlib.compress(text.encode(), _LEVEL)).decode("ascii")
        else:
            value["manifest" if base is None else "changes"] = content
    body = json.dumps(value, separators=(",", ":"))
    checksum = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]}{_CHECKSUM}{checksum}"}}\n'.encode(), checksum


def decode(stored: bytes, version: int, location: str) -> LogFile:
    """What the bytes of a file say.

    Args:
        stored: the bytes.
        version: the number in the name of the file.
        location: the file, for messages.

    Raises:
        UnknownFormatError: it was written in another format version.
        CorruptCheckpointError: it is not what was written.
    """
    try:
        value: dict[str, Any] = json.loads(stored)
        found = value["format_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise corrupt(location, "it is not a JSON object of a manifest log") from error
    require_format(found, location)
    body = stored.decode().rpartition(_CHECKSUM)[0] + "}"
    checksum = hashlib.sha256(body.encode()).hexdigest()
    if checksum != value.get("checksum"):
        raise corrupt(location, "its checksum does not match its content")
    try:
        if value["version"] != version:
            raise corrupt(location, f"it says that it is version {value['version']}")
        base = value.get("base")
        return LogFile(
            version=version,
            generation=int(value["generation"]),
            owner=str(value["owner"]),
            content=None if value["kind"] == "open" else _content(value),
            base=None if base is None else Base(int(base["version"]), str(base["checksum"])),
            oldest=int(value.get("oldest", 0)),
            checksum=checksum,
        )
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
        raise corrupt(location, f"it lacks a part or has a wrong one ({error!r})") from error


def _content(value: dict[str, Any]) -> dict[str, Any]:
    content: object
    if "packed" in value:
        content = json.loads(zlib.decompress(b64decode(value["packed"], validate=True)))
    else:
        content = value["manifest"] if "base" not in value else value["changes"]
    if not isinstance(content, dict):
        message = "the manifest is not an object"
        raise TypeError(message)
    return content


def corrupt(location: str, reason: str) -> CorruptCheckpointError:
    """The error for a file that is not as it should be."""
    message = (
        f"{location} is damaged: {reason}. Put the file back from a copy. Going on from an older"
        " checkpoint would write again what was already committed."
    )
    return CorruptCheckpointError(message)
