"""The state of one key in a checkpoint, while the job that wrote it runs."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import StateError
from millstream.state.backend import open_store
from millstream.state.key_codec import decode_key, encode_key, key_group_of_encoded
from millstream.state.key_context import following, head_of_key
from millstream.state.registry import Section, codec_for, read_metadata, read_sections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.checkpoint.model import Manifest, OperatorAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore


_KINDS = ("value", "reducing", "aggregating", "list", "map")


@dataclass(frozen=True, slots=True)
class StateQueryResult:
    """What a checkpoint has of a state for one key."""

    #: The checkpoint, and when it was published in milliseconds since 1970.
    checkpoint_id: int
    published: int
    #: The value; of list state a list, of map state a dictionary; None if the key has none.
    value: Any
    #: The last access to a value that expires, or the latest of its parts, in milliseconds.
    last_access: int | None = None


def query_checkpoint(
    storage: CheckpointStorage, manifest: Manifest, uid: str, state: str, key: object
) -> StateQueryResult:
    """Read what a checkpoint has of a keyed state of a function for a key.

    Args:
        storage: of the checkpoint.
        manifest: the checkpoint.
        uid: of the operator.
        state: the name of the state.
        key: as the function sees it.

    Raises:
        StateError: there is no such operator or state, or it is no keyed state of a function.
        CorruptCheckpointError: a file is missing or damaged.
    """
    acks = [ack for ack in manifest.operators.get(uid, []) if ack.state is not None]
    if not acks:
        known = [uid for uid, some in manifest.operators.items() if any(a.state for a in some)]
        message = (
            f"checkpoint {manifest.epoch} has no keyed state of an operator with uid {uid!r}; there"
            f" are: {', '.join(map(repr, sorted(known))) or 'none'}"
        )
        raise StateError(message)
    encoded = encode_key(key)
    max_parallelism = max(ack.state["key_groups"][1] for ack in acks if ack.state is not None)
    group = key_group_of_encoded(encoded, max_parallelism)
    own = next(a for a in acks if a.state and group in range(*a.state["key_groups"]))
    names: set[str] = set()
    # The subtask of the key, then others: it may not have met the state yet.
    for ack in sorted(acks, key=lambda each: each is not own):
        with tempfile.TemporaryDirectory(prefix="millstream-query-") as directory:
            store = _open(storage, ack, Path(directory))
            with closing(store):
                sections = {each.name: each for each in read_sections(store)}
                names |= {name for name in sections if not name.startswith("\0")}
                section = sections.get(state)
                if section is not None:
                    codec = codec_for(read_metadata(store)[state])
                    entries = _entries(store, section, group, encoded) if ack is own else iter(())
                    values = [(rest, codec.decode(stored)) for rest, stored in entries]
                    value, accessed = _value_of(section, values)
                    return StateQueryResult(manifest.epoch, manifest.published, value, accessed)
    message = (
        f"operator {uid!r} has no keyed state {state!r} in checkpoint {manifest.epoch}; there are:"
        f" {', '.join(map(repr, sorted(names))) or 'none'}"
    )
    raise StateError(message)


def _open(storage: CheckpointStorage, ack: OperatorAck, directory: Path) -> KeyValueStore:
    handle = ack.state
    assert handle is not None  # noqa: S101 - the caller has looked
    first, stop = handle["key_groups"]
    backend = handle["backend"]
    return open_store(
        backend, storage, ack.uid, ack.subtask, (first, stop), [handle], "query", directory
    )


def _entries(
    store: KeyValueStore, section: Section, group: int, encoded: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """What stands behind the key, and the value, of each entry of a key."""
    if section.kind not in _KINDS:
        message = f"state {section.name!r} is {section.kind} state, which cannot be queried by key"
        raise StateError(message)
    head = head_of_key(group, section.index, encoded)
    for name, value in store.scan(head, following(head)):
        yield name[len(head) :], value


def _value_of(section: Section, found: list[tuple[bytes, Any]]) -> tuple[Any, int | None]:
    """The value, and when it was accessed."""
    if not found:
        return None, None
    if section.kind == "list":
        elements = [each for _, chunk in found for each in chunk]
        if section.expires:
            return [value for _, value in elements], max(time for time, _ in elements)
        return elements, None
    times = [value[0] for _, value in found] if section.expires else []
    values = [(rest, value[1] if section.expires else value) for rest, value in found]
    accessed = max(times, default=None)
    if section.kind == "map":
        return {decode_key(rest): value for rest, value in values}, accessed
    return values[0][1], accessed
