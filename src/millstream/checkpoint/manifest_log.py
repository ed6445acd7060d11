"""The manifest log: numbered versions, created with put-if-absent, with their writer's generation.

Versions are ``log/00000000000000000007.json`` and so on, of two kinds:

* ``open``: a run has begun.  Its generation is one more than that of the version before.  *
``checkpoint``: the manifest of one epoch.  The existence of this file *is* the commit of the epoch.

A writer only ever creates the version that follows its own last one.  The next run's ``open``
takes exactly that number, so a writer that was thought dead finds its next version taken and
can never publish again (fencing).  For this to hold, ``open`` versions are never deleted: they
are a few hundred bytes per run.  Versions of old checkpoints are deleted.

A manifest that is long and differs little from the one before is written as its changes, on top of
the version before (its *base*).  After so many changes, or when they have become as long, it is
written in full again, and so is the first of each run.  Versions of old checkpoints stay as long as
one that is kept needs them; each version names the oldest that is still a checkpoint.

In the JSON form bytes are base64, integer keys strings.  Nothing is unpickled here, so a manifest
can be read without the job's code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.model import FORMAT_VERSION, MANIFEST, require_format
from millstream.errors import CorruptCheckpointError, FencedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage


#: JSON.
Changes = dict[str, Any]


def difference(old: object, new: object) -> Changes:
    """Return what makes ``new`` of ``old``."""
    if old == new and type(old) is type(new):
        return {}
    if isinstance(old, dict) and isinstance(new, dict):
        return _of_objects(old, new)
    if isinstance(old, list) and isinstance(new, list):
        return _of_lists(old, new)
    return {"to": new}


def apply(old: Any, changes: Changes) -> Any:
    """Return what ``changes`` make of ``old``, which stays as it is.

    Raises:
        KeyError, IndexError, TypeError, ValueError, AttributeError: they are not changes of it.
    """
    if not changes:
        return old
    if "to" in changes:
        return changes["to"]
    if "at" in changes:
        made = list(old)
        for index, inner in changes["at"].items():
            made[int(index)] = apply(made[int(index)], inner)
        return made
    if "cut" in changes:
        start, count = changes["cut"]
        return [*old[:start], *changes["put"], *old[start + count :]]
    found = dict(old)
    for key in changes.get("-", ()):
        del found[key]
    for key, inner in changes.get("~", {}).items():
        found[key] = apply(found[key], inner)
    found.update(changes.get("+", {}))
    return found


def _of_objects(old: dict[str, Any], new: dict[str, Any]) -> Changes:
    added = {key: value for key, value in new.items() if key not in old}
    gone = [key for key in old if key not in new]
    inner: Changes = {}
    for key, value in new.items():
        if key in old:
            changes = difference(old[key], value)
            if "to" in changes:
                added[key] = value
            elif changes:
                inner[key] = changes
    parts = {"+": added, "~": inner, "-": gone}
    return {name: part for name, part in parts.items() if part}


def _of_lists(old: list[Any], new: list[Any]) -> Changes:
    if len(old) == len(new) and all(isinstance(each, dict) for each in (*old, *new)):
        pairs = enumerate(zip(old, new, strict=True))
        changes = {str(index): difference(one, other) for index, (one, other) in pairs}
        return {"at": {index: each for index, each in changes.items() if each}}
    shorter = min(len(old), len(new))
    front = next((i for i in range(shorter) if not _same(old[i], new[i])), shorter)
    behind = next(
        (i for i in range(shorter - front) if not _same(old[-1 - i], new[-1 - i])), shorter - front
    )
    return {"cut": [front, len(old) - front - behind], "put": new[front : len(new) - behind]}


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


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
    """Return what the bytes of a file say.

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
            raise corrupt(location, f"it names itself version {value['version']}")
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
        f"{location} is damaged: {reason}. Put the file back from a copy. Continuing from an older"
        " checkpoint would write again what was already committed."
    )
    return CorruptCheckpointError(message)


LOG_DIRECTORY: Final = "log"
_NAME: Final = re.compile(r"log/(\d{20})\.json")
#: How often reading starts again because a live writer deleted what was just listed.
_READ_ATTEMPTS: Final = 20
#: Files of fewer bytes are not worth a base.
_LEAST_BASE: Final = 4096
#: So many versions may lie one on top of the other, so that reading the last stays quick.
_MOST_CHANGES: Final = 32
#: Manifests that were read and may be the base of what is read next.
_MOST_READ: Final = 2


@dataclass(frozen=True, slots=True)
class LogVersion:
    """One version of the log."""

    version: int
    generation: int
    #: "host:pid" of the writer, for messages.
    owner: str
    #: None for an ``open``.
    manifest: Manifest | None
    #: The oldest version that was still a checkpoint when this one was published.
    oldest: int = 0


@dataclass(frozen=True, slots=True)
class _Published:
    """The last version that this writer published."""

    base: Base
    #: The manifest.
    value: dict[str, Any]
    #: How many versions it lies on, bytes of the first of them, and of the others together.
    depth: int
    full: int
    changes: int


class ManifestLog:
    """The log of one job, for one writer and any number of readers.

    Contract:
      1. Of several writers only the one that opened last can publish.  (tests)
      2. ``publish`` either creates its version or raises; after an error the caller opens again
         and looks.  (Coordinator)
      3. A version never changes.  (storage)
    """

    def __init__(self, storage: CheckpointStorage) -> None:
        self._storage = storage
        self._generation: int | None = None
        #: The generation of this writer; or that which it may have begun when opening failed.
        self.claimed: int | None = None
        #: The version that this writer wrote last.
        self.last_version = -1
        self._published: _Published | None = None
        #: Version of each manifest that was read or published -> that of its base.
        self._bases: dict[int, int | None] = {}
        #: (version, checksum) -> manifest, of the last ones that were read.
        self._read: dict[Base, dict[str, Any]] = {}

    @property
    def generation(self) -> int:
        """The generation of this writer; ``open_generation`` must have been called."""
        if self._generation is None:
            message = f"the manifest log in {self._storage.location} was not opened for writing"
            raise FencedError(message)
        return self._generation

    @property
    def location(self) -> str:
        """Return where the log is, for messages."""
        return self._storage.location

    @staticmethod
    def name(version: int) -> str:
        """The name of ``version`` in the storage."""
        return f"{LOG_DIRECTORY}/{version:020d}.json"

    def open_generation(self, after: int | None = None) -> int:
        """Begin a new generation: from now on no other writer can publish.

        Args:
            after: the generation that the caller began last; None: any may have been.

        Returns:
            The new generation, from 1.

        Raises:
            FencedError: another run has begun one after that.
            UnknownFormatError: the newest version was written in another format version.
            CorruptCheckpointError: it cannot be read, or is gone since ``after``.
        """
        while True:
            newest = self._newest()
            if after is not None:
                self._require_newest(newest, after)
            version, generation = (newest.version + 1, newest.generation + 1) if newest else (0, 1)
            content, _ = encode(version, generation)
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
            try:
                opened = self._storage.put_if_absent(
                    self.name(version), content
                ) and version == max(self.versions())
            except BaseException:
                self.claimed = generation
                raise
            if opened:
                self._generation, self.last_version = generation, version
                self.claimed = generation
                return generation

    def publish(self, manifest: Manifest, oldest: int | None = 0) -> int:
        """Publish ``manifest``: the commit point of its epoch.

        Args:
            manifest: of the epoch.
            oldest: the oldest version that stays a checkpoint; None: this is the only one.

        Returns:
            The version that holds it.

        Raises:
            FencedError: a newer run has opened the log.
        """
        version = self.last_version + 1
        value = MANIFEST.write(replace(manifest, generation=self.generation))
        content, published = self._encoded(version, value, version if oldest is None else oldest)
        # Cases:
        # 1. True: published.
        # 2. False, and the version there has our very bytes: an earlier try of ours that failed
        #    after it had written.  Published.
        # 3. False, and it has a newer generation: that run's open.  We are fenced.
        # What can never happen: False and a version of an older or our own generation with
        # other content.  Older writers find our open in their way, and we are one thread.
        if not self._storage.put_if_absent(self.name(version), content):
            self._require_own(version, content)
        before = self._published
        on_top = before is not None and published.depth > 0
        self._bases[version] = before.base.version if before is not None and on_top else None
        self.last_version, self._published = version, published
        return version

    def _encoded(
        self, version: int, value: dict[str, Any], oldest: int
    ) -> tuple[bytes, _Published]:
        """The file of a manifest: in full, or as its changes if those are short."""
        before = self._published
        if before is not None and before.full >= _LEAST_BASE and before.depth < _MOST_CHANGES:
            changes = difference(before.value, value)
            content, checksum = encode(
                version, self.generation, changes, base=before.base, oldest=oldest
            )
            length = before.changes + len(content)
            # All changes together as long as the whole: writing it again costs no more than half.
            if length <= before.full:
                base = Base(version, checksum)
                return content, _Published(base, value, before.depth + 1, before.full, length)
        content, checksum = encode(version, self.generation, value, oldest=oldest)
        return content, _Published(Base(version, checksum), value, 0, len(content), 0)

    def check_fence(self) -> None:
        """Make sure, as of now, that no newer run has opened the log.

        Raises:
            FencedError: one has.
        """
        version = self.last_version + 1
        if self._storage.exists(self.name(version)):
            self._require_own(version, b"")

    def is_fenced(self) -> bool:
        """Return whether a newer run has opened the log."""
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
        """Every version but those that are bases only, oldest first.

        Versions that are deleted meanwhile are passed over.
        """
        oldest = self.oldest_checkpoint()
        for version in self.versions():
            try:
                file = self._file(version)
                if file.content is None or version >= oldest:
                    yield self._version_of(file)
            except FileNotFoundError:
                continue

    def oldest_checkpoint(self) -> int:
        """The oldest version that is still a checkpoint: manifests before it are bases only."""
        for version in reversed(self.versions()):
            try:
                file = self._file(version)
            except (FileNotFoundError, CorruptCheckpointError):
                continue  # whoever reads the version is told
            if file.content is not None:
                return file.oldest
        return 0

    def versions(self) -> list[int]:
        """The numbers of the versions that exist, in order."""
        matches = map(_NAME.fullmatch, self._storage.list_names(LOG_DIRECTORY))
        return sorted(int(match[1]) for match in matches if match)

    def read(self, version: int) -> LogVersion:
        """One version.

        Raises:
            FileNotFoundError: there is none of that number.
            CorruptCheckpointError: it, or a version that it lies on, is not what was written.
            UnknownFormatError: it was written in another format version.
        """
        return self._version_of(self._file(version))

    def checksum(self, version: int) -> str:
        """The checksum of the file of a version; raises as ``read`` does."""
        return self._file(version).checksum

    def keep(self, versions: Iterable[int]) -> None:
        """Delete all manifests but those of ``versions`` and what they lie on.

        Only what this object has read or published is deleted, and never an ``open``.
        """
        needed: set[int | None] = {None}
        for version in versions:
            base: int | None = version
            while base not in needed:
                needed.add(base)
                base = None if base is None else self._bases.get(base)
        dropped = [version for version in self._bases if version not in needed]
        if dropped:
            self._storage.delete([self.name(version) for version in dropped])
        for version in dropped:
            del self._bases[version]

    # -- reading -------------------------------------------------------------------------------

    def _path(self, version: int) -> str:
        return f"{self.name(version)} in {self._storage.location}"

    def _file(self, version: int) -> LogFile:
        return decode(self._storage.read(self.name(version)), version, self._path(version))

    def _version_of(self, file: LogFile) -> LogVersion:
        manifest = None
        if file.content is not None:
            self._bases[file.version] = None if file.base is None else file.base.version
            try:
                manifest = MANIFEST.read(self._value_of(file))
            except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
                reason = f"it lacks a part or has a wrong one ({error!r})"
                raise corrupt(self._path(file.version), reason) from error
        return LogVersion(file.version, file.generation, file.owner, manifest, file.oldest)

    def _value_of(self, file: LogFile) -> dict[str, Any]:
        """The manifest that a file says, with what it lies on."""
        files = [file]
        value: dict[str, Any] | None = None
        while value is None:
            base = files[-1].base
            if base is None:
                value = files.pop().content
            elif base in self._read:
                value = self._read[base]
            else:
                files.append(self._base_file(base, file.version))
        for each in reversed(files):
            value = apply(value, each.content or {})
        self._read[Base(file.version, file.checksum)] = value
        while len(self._read) > _MOST_READ:
            del self._read[next(iter(self._read))]
        return value

    def _base_file(self, base: Base, version: int) -> LogFile:
        """The file of a base of ``version``.

        Raises:
            FileNotFoundError: both are gone: a live writer has cleaned up.
            CorruptCheckpointError: only the base is gone, or is another than it was.
        """
        try:
            file = self._file(base.version)
        except FileNotFoundError:
            if not self._storage.exists(self.name(version)):
                raise
            file = None
        if file is None or file.checksum != base.checksum or file.content is None:
            found = "missing" if file is None else "another than it was"
            reason = f"it holds the changes since version {base.version}, which is {found}"
            raise corrupt(self._path(version), reason)
        self._bases.setdefault(file.version, None if file.base is None else file.base.version)
        return file

    def _newest(self) -> LogFile | None:
        for _ in range(_READ_ATTEMPTS):
            versions = self.versions()
            if not versions:
                return None
            try:
                return self._file(versions[-1])
            except FileNotFoundError:
                continue
        message = f"the manifest log in {self._storage.location} changes while it is read"
        raise CorruptCheckpointError(message)

    def _require_newest(self, newest: LogFile | None, generation: int) -> None:
        """Raise FencedError if there is a newer one than ``generation``."""
        if newest is None:
            message = (
                f"the manifest log in {self._storage.location} is empty, though this job has begun"
                f" generation {generation}: somebody has deleted it. Put it back from a copy, or"
                " start the job from scratch with an empty directory."
            )
            raise CorruptCheckpointError(message)
        if newest.generation > generation:
            message = (
                f"the job in {self._storage.location} was taken over by generation"
                f" {newest.generation} ({newest.owner}) after generation {generation}, which this"
                " run began; so this one does not start again"
            )
            raise FencedError(message)

    def _require_own(self, version: int, content: bytes) -> None:
        present = self._storage.read(self.name(version))
        if present == content:
            return
        entry = decode(present, version, self.name(version))
        message = (
            f"the job in {self._storage.location} was taken over by generation"
            f" {entry.generation} ({entry.owner}); this run is generation {self.generation} and"
            " must not publish any more. Stop this run, or stop the other and start this one again."
        )
        raise FencedError(message)
