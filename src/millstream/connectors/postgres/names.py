"""Names on a PostgreSQL server that tell job, sink and run: of transactions, parts and sessions.

What it is: ``millstream-<job>-<sink>-g<generation>-...``.  Job and sink are hashes of 64 bits, for
a name of a session has 63 bytes at most and the server cuts what is longer: cut names of two runs
could be equal.

Read next: ``connectors/postgres/sessions.py``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from millstream.errors import SinkError

if TYPE_CHECKING:
    from millstream.contracts.sink import WriterContext

__all__ = ["OWN", "generation_of", "output_name", "output_prefix", "session_name"]

#: How all names begin.
OWN: Final = "millstream-"
#: Bytes of a name that the server keeps (NAMEDATALEN less one).
_LONGEST: Final = 63


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def output_prefix(job_id: str, sink_uid: str) -> str:
    """How the names of all output, and of all sessions, of a sink of a job begin."""
    return f"{OWN}{_hashed(job_id)}-{_hashed(sink_uid)}-"


def output_name(context: WriterContext, unique: str) -> str:
    """A name for the output of one attempt, made of its place and ``unique``."""
    prefix = output_prefix(context.job_id, context.sink_uid)
    return f"{prefix}g{context.generation}-e{context.epoch}-s{context.subtask}-{unique}"


def session_name(job_id: str, sink_uid: str, generation: int, role: str) -> str:
    """The ``application_name`` of a session.

    Args:
        job_id: the job.
        sink_uid: the sink in it.
        generation: the run.
        role: what the session is for, in a few letters.

    Raises:
        SinkError: the server would cut the name.
    """
    name = f"{output_prefix(job_id, sink_uid)}g{generation}-{role}"
    if len(name.encode()) > _LONGEST:
        message = f"{name!r} has more than the {_LONGEST} bytes that a session's name may have"
        raise SinkError(message)
    return name


def generation_of(name: str, prefix: str) -> int:
    """The generation in a name.

    Raises:
        SinkError: the name is not of this release's making.
    """
    text = name.removeprefix(prefix).partition("-")[0].removeprefix("g")
    if not text.isdigit():
        message = f"{name!r} is not a name of Millstream's; it has no generation"
        raise SinkError(message)
    return int(text)
