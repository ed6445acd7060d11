"""The manifest log: numbered versions, created with put-if-absent, with their writer's generation.

What it is: ``log/00000000000000000007.json`` and so on.  A version is one of two kinds:

* ``open``: a run has begun.  Its generation is one more than that of the version before.
* ``checkpoint``: the manifest of one epoch.  That this file exists *is* the commit of the epoch.

A writer only ever creates the version that follows its own last one.  The next run's ``open``
takes exactly that number, so a writer that was thought dead finds its next version taken and
can never publish again (fencing).  For this to hold, ``open`` versions are never deleted: they
are a few hundred bytes per run.  Versions of old checkpoints are deleted.

What it is not: a decision of when to publish or what to do about a manifest; see
``checkpoint/coordinator.py``.

The file is one JSON object.  Its last member, ``checksum``, is the SHA-256 of the bytes of the
file up to the comma before it, closed with ``}``.

Read next: ``checkpoint/coordinator.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.manifest_codec import manifest_from_json, manifest_to_json
from millstream.checkpoint.model import FORMAT_VERSION, READABLE_VERSIONS
from millstream.errors import CorruptCheckpointError, FencedError, UnknownFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.checkpoint.model import Manifest
    from millstream.checkpoint.storage import CheckpointStorage

__all__ = ["LogVersion", "ManifestLog"]

_DIRECTORY: Final = "log"
_NAME: Final = re.compile(r"log/(\d{20})\.json")
_CHECKSUM: Final = ',"checksum":"'
#: How often reading starts again because a live writer deleted what was just listed.
_READ_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class LogVersion:
    """One version of the log."""

    version: int
    generation: int
    #: "host:pid" of the writer, for messages.
    owner: str
    #: None for an ``open``.
    manifest: Manifest | None


class ManifestLog:
    """The log of one job, for one writer and any number of readers.

    Contract:
      1. Of several writers only the one that opened last can publish.  (tests)
      2. ``publish`` either creates its version or raises; after an error the caller opens again
         and looks.  (Coordinator)
      3. A version never changes.  (storage)
    """

    def __init__(self, storage: CheckpointStorage) -> None:
        """Read and write the log in ``storage``; nothing is read or written yet."""
        self._storage = storage
        self._generation: int | None = None
        self._last_version = -1

    @property
    def generation(self) -> int:
        """The generation of this writer; ``open_generation`` must have been called."""
        if self._generation is None:
            message = f"the manifest log in {self._storage.location} was not opened for writing"
            raise FencedError(message)
        return self._generation

    @property
    def location(self) -> str:
        """Where the log is, for messages."""
        return self._storage.location

    @property
    def last_version(self) -> int:
        """The version that this writer wrote last."""
        return self._last_version

    @staticmethod
    def name(version: int) -> str:
        """The name of ``version`` in the storage."""
        return f"{_DIRECTORY}/{version:020d}.json"

    def open_generation(self) -> int:
        """Begin a new generation: from now on no other writer can publish.

        Returns:
            The new generation, from 1.

        Raises:
            UnknownFormatError: the newest version was written in another format version.
            CorruptCheckpointError: it cannot be read.
        """
        while True:
            newest = self._newest()
            version, generation = (newest.version + 1, newest.generation + 1) if newest else (0, 1)
            content = _encode(version, generation, "open", None)
            # Cases:
            # 1. False: another run opened or the old writer published in between.  Look again.
            # 2. True and the version is the newest: we are the writer; whoever wrote before
            #    finds this very version taken.
            # 3. True and there are newer ones: between our look and our put the old writer
            #    published on and cleaned up the version that we then created.  It fences nobody;
            #    leave it (deleting could open a gap if it does fence) and look again.
            # What can never happen: two runs that both see their version as the newest and
            # both publish.  The later version was put after the earlier one was seen, and it
            # is the one that the earlier run's next publish needs.
            if self._storage.put_if_absent(self.name(version), content) and version == max(
                self.versions()
            ):
                self._generation, self._last_version = generation, version
                return generation

    def publish(self, manifest: Manifest) -> int:
        """Publish ``manifest``: the commit point of its epoch.

        Returns:
            The version that holds it.

        Raises:
            FencedError: a newer run has opened the log.
        """
        version = self._last_version + 1
        manifest = replace(manifest, generation=self.generation)
        content = _encode(version, self.generation, "checkpoint", manifest)
        # Cases:
        # 1. True: published.
        # 2. False, and the version there has our very bytes: an earlier try of ours that failed
        #    after it had written.  Published.
        # 3. False, and it has a newer generation: that run's open.  We are fenced.
        # What can never happen: False and a version of an older or our own generation with
        # other content.  Older writers find our open in their way, and we are one thread.
        if not self._storage.put_if_absent(self.name(version), content):
            self._require_own(version, content)
        self._last_version = version
        return version

    def check_fence(self) -> None:
        """Make sure, as of now, that no newer run has opened the log.

        Raises:
            FencedError: one has.
        """
        version = self._last_version + 1
        if self._storage.exists(self.name(version)):
            self._require_own(version, b"")

    def is_fenced(self) -> bool:
        """Whether a newer run has opened the log."""
        newest = self._newest()
        return newest is not None and newest.generation > self.generation

    def latest(self) -> Manifest | None:
        """The newest manifest; None if there is none.

        Raises:
            CorruptCheckpointError: it cannot be read.  An older one would be the wrong answer:
                what this one names may have been committed already.
            UnknownFormatError: it was written in another format version.
        """
        for _ in range(_READ_ATTEMPTS):
            try:
                for version in reversed(self.versions()):
                    manifest = self.read(version).manifest
                    if manifest is not None:
                        return manifest
            except FileNotFoundError:
                continue  # cleaned up between listing and reading: there are newer ones
            return None
        message = f"the manifest log in {self._storage.location} changes while it is read"
        raise CorruptCheckpointError(message)

    def manifests(self) -> list[Manifest]:
        """Every manifest that is kept, oldest first.

        Raises:
            CorruptCheckpointError: one cannot be read.
            UnknownFormatError: one was written in another format version.
        """
        return [entry.manifest for entry in self.entries() if entry.manifest is not None]

    def entries(self) -> Iterator[LogVersion]:
        """Every version, oldest first; those deleted meanwhile are passed over."""
        for version in self.versions():
            try:
                yield self.read(version)
            except FileNotFoundError:
                continue

    def versions(self) -> list[int]:
        """The numbers of the versions that exist, in order."""
        matches = map(_NAME.fullmatch, self._storage.list_names(_DIRECTORY))
        return sorted(int(match[1]) for match in matches if match)

    def read(self, version: int) -> LogVersion:
        """One version.

        Raises:
            FileNotFoundError: there is none of that number.
            CorruptCheckpointError: it is not what was written.
            UnknownFormatError: it was written in another format version.
        """
        name = self.name(version)
        return _decode(
            self._storage.read(name), version, place=f"{name} in {self._storage.location}"
        )

    def delete(self, versions: Iterable[int]) -> None:
        """Delete versions of old checkpoints.  Never call it for an ``open``."""
        self._storage.delete([self.name(version) for version in versions])

    def _newest(self) -> LogVersion | None:
        for _ in range(_READ_ATTEMPTS):
            versions = self.versions()
            if not versions:
                return None
            try:
                return self.read(versions[-1])
            except FileNotFoundError:
                continue
        message = f"the manifest log in {self._storage.location} changes while it is read"
        raise CorruptCheckpointError(message)

    def _require_own(self, version: int, content: bytes) -> None:
        present = self._storage.read(self.name(version))
        if present == content:
            return
        entry = _decode(present, version, place=self.name(version))
        message = (
            f"the job in {self._storage.location} was taken over by generation"
            f" {entry.generation} ({entry.owner}); this run is generation {self.generation} and"
            " must not publish any more. Stop this run, or stop the other and start this one again."
        )
        raise FencedError(message)


def _encode(version: int, generation: int, kind: str, manifest: Manifest | None) -> bytes:
    value: dict[str, object] = {
        "format_version": FORMAT_VERSION,
        "version": version,
        "generation": generation,
        "kind": kind,
        "owner": f"{socket.gethostname()}:{os.getpid()}",
    }
    if manifest is not None:
        value["manifest"] = manifest_to_json(manifest)
    body = json.dumps(value, separators=(",", ":"))
    checksum = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]}{_CHECKSUM}{checksum}"}}\n'.encode()


def _decode(content: bytes, version: int, place: str) -> LogVersion:
    try:
        value: dict[str, Any] = json.loads(content)
        found = value["format_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise _corrupt(place, "it is not a JSON object of a manifest log") from error
    if found not in READABLE_VERSIONS:
        message = (
            f"{place} has format version {found!r}; this release of Millstream reads versions up to"
            f" {FORMAT_VERSION}. Run the job with the release that wrote it, or start with an"
            " empty checkpoint directory."
        )
        raise UnknownFormatError(message)
    body = content.decode().rpartition(_CHECKSUM)[0] + "}"
    if hashlib.sha256(body.encode()).hexdigest() != value.get("checksum"):
        raise _corrupt(place, "its checksum does not match its content")
    try:
        if value["version"] != version:
            raise _corrupt(place, f"it says that it is version {value['version']}")
        is_open = value["kind"] == "open"
        manifest = None if is_open else manifest_from_json(value["manifest"])
        return LogVersion(version, int(value["generation"]), str(value["owner"]), manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _corrupt(place, f"it lacks a part or has a wrong one ({error!r})") from error


def _corrupt(place: str, reason: str) -> CorruptCheckpointError:
    message = (
        f"{place} is damaged: {reason}. Put the file back from a copy. Going on from an older"
        " checkpoint would write again what was already committed."
    )
    return CorruptCheckpointError(message)
