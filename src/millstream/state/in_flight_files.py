"""In-flight data in an unaligned checkpoint: one file per task with the overtaken frames.

An Arrow IPC file with a row per frame, in order per channel: ``channel`` (its number in the table
of channels), ``kind`` (``runtime/exchange.py``) and ``payload``.  The table is JSON in the schema's
metadata: for each channel its edge, by the uids at both ends, the watermark and idleness that its
reader knew at its snapshot, and whether it carries the end of a source.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from millstream.checkpoint.manifest_log import edge_name_from_json
from millstream.checkpoint.model import FramesInFlight, difference, digest_of
from millstream.contracts.key_value_store import StateFile
from millstream.crash_points import crash_point
from millstream.errors import UnknownFormatError
from millstream.state.local_copies import damaged_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.graph.validation import EdgeName


_FORMAT_KEY: Final = b"millstream.in-flight.format"
_FORMAT: Final = b"1"
_CHANNELS_KEY: Final = b"millstream.in-flight.channels"
_FIELDS: Final = (
    pa.field("channel", pa.int32()),
    pa.field("kind", pa.int8()),
    pa.field("payload", pa.large_binary()),
)


@dataclass(frozen=True, slots=True)
class ChannelInFlight:
    """A channel with frames in flight, as its reader knew it."""

    edge: EdgeName
    #: Milliseconds.
    watermark: int
    idle: bool
    #: Its maximum is the end of a source, which counts when all producers of the edge have said it.
    ends: bool = False


class FrameInFlight(NamedTuple):
    """One frame."""

    #: The place of its channel in the table of channels.
    channel: int
    kind: int
    payload: bytes | memoryview


def write_frames(
    stage: int,
    subtask: int,
    channels: Sequence[ChannelInFlight],
    frames: Sequence[FrameInFlight],
    storage: CheckpointStorage,
    cuts: Mapping[EdgeName, str],
) -> FramesInFlight:
    """Make the frames in flight of a task durable, and say where they are.

    Args:
        stage: of the task.
        subtask: of the task.
        channels: all that the frames are of.
        frames: at least one; in order per channel.
        storage: of the checkpoint.
        cuts: of the edges: by what their records were shared out.
    """
    table = [[list(each.edge), each.watermark, each.idle, each.ends] for each in channels]
    metadata = {_FORMAT_KEY: _FORMAT, _CHANNELS_KEY: json.dumps(table).encode()}
    schema = pa.schema(_FIELDS, metadata=metadata)
    values = zip(*frames, strict=True)
    columns = [pa.array(each, to.type) for each, to in zip(values, _FIELDS, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    content: bytes = sink.getvalue().to_pybytes()
    size, digest = digest_of([content])
    # Named by chance, as all state files.
    local = f"{uuid.uuid4().hex}-in-flight.arrow"
    remote = f"state/in-flight/{stage}-{subtask}/{local}"
    crash_point("in-flight.upload.before")
    storage.write(remote, content)
    crash_point("in-flight.upload.after")
    edges = tuple(dict.fromkeys(each.edge for each in channels))
    file = StateFile(local=local, remote=remote, size=size, digest=digest)
    known = tuple(cuts[each] for each in edges)
    return FramesInFlight(stage, subtask, edges, len(frames), file, known)


def read_frames(
    handle: FramesInFlight, storage: CheckpointStorage
) -> tuple[list[ChannelInFlight], list[FrameInFlight]]:
    """What ``write_frames`` was given.

    Raises:
        CorruptCheckpointError: the file is missing or is not what was written.
        UnknownFormatError: it was written in another format.
    """
    name = handle.file["remote"]
    try:
        stored = storage.read(name)
    except FileNotFoundError as error:
        raise damaged_checkpoint(storage, f"{name}, frames in flight, is missing") from error
    reason = difference([stored], handle.file)
    if reason is not None:
        raise damaged_checkpoint(storage, f"{name}, frames in flight, is corrupt: {reason}")
    table = pa.ipc.open_file(pa.BufferReader(stored)).read_all()
    metadata = table.schema.metadata or {}
    version = metadata.get(_FORMAT_KEY)
    if version != _FORMAT:
        message = f"{name}: frames in flight of format {version!r}; known is {_FORMAT!r}"
        raise UnknownFormatError(message)
    channels = [
        ChannelInFlight(edge_name_from_json(edge), int(watermark), bool(idle), bool(ends))
        for edge, watermark, idle, ends in json.loads(metadata[_CHANNELS_KEY])
    ]
    rows = zip(*(table.column(field.name).to_pylist() for field in _FIELDS), strict=True)
    return channels, [FrameInFlight(*row) for row in rows]
