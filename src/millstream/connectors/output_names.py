"""Names of a sink's output, by which a later run recognizes whose it is and of which run.

This is the only place that makes and reads them.  Each begins with the owner, in the alphabet and
length that the target allows, followed by the run and a unique part::

    files, checkpoint   <job>/<sink>/                         g3-000007-1-<attempt>-<random>
    PostgreSQL          millstream-<hash 16>-<hash 16>-       g3-e7-s1-<random>
    its sessions        millstream-<hash 16>-<hash 16>-       g3-commit
    Kafka               <prefix>-<job>-<hash 8>-              g3-<random>

They lie in the targets of running jobs: a form that is changed here must still be read.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote

from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from millstream.contracts.sink import CommitterContext, WriterContext


#: How all names on a PostgreSQL server begin.
SERVER_PREFIX: Final = "millstream-"
#: Bytes of the name of a session that PostgreSQL keeps (NAMEDATALEN less one).
_LONGEST: Final = 63
_RUN: Final = re.compile(r"g(\d+)-")
_EPOCH: Final = re.compile(r"g\d+-(\d+)-")
_TRANSACTIONAL_ID: Final = re.compile(
    r"(?P<prefix>.*)-(?P<job>[0-9a-f]{32})-(?P<sink>[0-9a-f]{8})-g(?P<generation>\d+)-[0-9a-f]{12}"
)


def generation_of(name: str, owner: str = "") -> int | None:
    """The generation of the run in a name; None if it has none, so is not ours.

    Args:
        name: the name.
        owner: what it begins with.
    """
    found = _RUN.match(name.removeprefix(owner))
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class OutputNames:
    """The names of the output of one sink in one job."""

    job_id: str
    sink_uid: str

    @classmethod
    def of(cls, context: WriterContext | CommitterContext) -> Self:
        """Those of a writer's or a committer's sink."""
        return cls(context.job_id, context.sink_uid)

    # -- the owner -----------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """Of files and blobs, below whatever is the target's own; two levels: job, sink."""
        return f"{quote(self.job_id, safe='')}/{quote(self.sink_uid, safe='')}"

    @property
    def tag(self) -> str:
        """Eight digits that tell jobs and sinks apart that write to the same place."""
        return _hashed(f"{self.job_id}/{self.sink_uid}", 8)

    @property
    def on_server(self) -> str:
        """How names on a PostgreSQL server begin.

        Hashes of 64 bits: the server cuts what is too long, and cut names could be equal.
        """
        return f"{SERVER_PREFIX}{_hashed(self.job_id, 16)}-{_hashed(self.sink_uid, 16)}-"

    def transactional(self, prefix: str) -> str:
        """How transactional ids of Kafka begin, behind the prefix that the user has chosen."""
        return f"{prefix}-{self.job_id}-{self.tag}-"

    # -- what is unique ------------------------------------------------------------------------

    @staticmethod
    def of_file(context: WriterContext, suffix: str) -> str:
        """A file or blob of an attempt, within ``directory``."""
        run = f"g{context.generation}-{context.epoch:06d}-{context.subtask}"
        return f"{run}-{quote(context.attempt, safe='')}-{_unique()}.{suffix}"

    @staticmethod
    def epoch_of(name: str) -> int | None:
        """The checkpoint in the name of a file; None if it has none."""
        found = _EPOCH.match(name)
        return None if found is None else int(found[1])

    def of_part(self, context: WriterContext) -> str:
        """A prepared transaction, or what else an attempt leaves on a PostgreSQL server."""
        run = f"g{context.generation}-e{context.epoch}-s{context.subtask}"
        return f"{self.on_server}{run}-{_unique()}"

    def of_session(self, generation: int, role: str) -> str:
        """The ``application_name`` of a session of a run.

        Args:
            generation: the run.
            role: what the session is for, in a few letters.

        Raises:
            SinkError: the server would cut the name.
        """
        name = f"{self.on_server}g{generation}-{role}"
        if len(name.encode()) > _LONGEST:
            message = f"{name!r} has more than the {_LONGEST} bytes that a session's name may have"
            raise SinkError(message)
        return name

    def of_producer(self, prefix: str, generation: int) -> str:
        """A new transactional id."""
        return f"{self.transactional(prefix)}g{generation}-{_unique()}"

    # -- telling what is left --------------------------------------------------------------------

    @staticmethod
    def orphans(
        names: Iterable[str], kept: Collection[str], generation: int, owner: str = ""
    ) -> list[str]:
        """The names of what runs left and no manifest names.

        Args:
            names: all that begin with ``owner``.
            kept: those that the last manifest names.
            generation: of this run.  What a newer one has made is its own: this run is about to
                be fenced and does not know it yet.
            owner: what the names begin with.
        """
        return [
            name
            for name in names
            if name not in kept and (generation_of(name, owner) or 0) <= generation
        ]


@dataclass(frozen=True, slots=True)
class TransactionalIdParts:
    """The owner of a transactional id, as its parts say."""

    prefix: str
    job_id: str
    #: ``OutputNames.tag``.
    sink: str
    generation: int

    @classmethod
    def of(cls, transactional_id: str) -> Self | None:
        """The parts of an id; None if Millstream did not make it."""
        found = _TRANSACTIONAL_ID.fullmatch(transactional_id)
        if found is None:
            return None
        return cls(found["prefix"], found["job"], found["sink"], int(found["generation"]))


def _hashed(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _unique() -> str:
    return uuid.uuid4().hex[:12]
