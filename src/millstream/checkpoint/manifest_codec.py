"""The JSON form of a manifest: between the dataclasses of ``model.py`` and plain JSON values.

What it is: two functions, one each way.  Bytes become base64, integer keys become strings and
back.  Nothing is unpickled here, so a manifest can be read without the job's code.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from millstream.checkpoint.model import FramesInFlight, Manifest, OperatorAck, SplitState
from millstream.checkpoint.program import record_from_json, record_to_json
from millstream.contracts.operator import OperatorStateHandle, OperatorStateKind
from millstream.graph.validation import EdgeName

if TYPE_CHECKING:
    from millstream.contracts.key_value_store import StateFile, StateHandle


#: A JSON object; its values are checked by the constructors that they go into.
JsonObject = dict[str, Any]


def manifest_to_json(manifest: Manifest) -> JsonObject:
    """A JSON object that says all of ``manifest``."""
    return {
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "job_id": manifest.job_id,
        "started": manifest.started,
        "published": manifest.published,
        "offsets": manifest.offsets,
        "operators": {
            uid: [_operator_to_json(ack) for ack in acks]
            for uid, acks in manifest.operators.items()
        },
        "splits": {
            uid: {key: _split_to_json(split) for key, split in splits.items()}
            for uid, splits in manifest.splits.items()
        },
        "stages": {str(level): parallelism for level, parallelism in manifest.stages.items()},
        "max_parallelism": manifest.max_parallelism,
        "final": manifest.final,
        "totals": manifest.totals,
        "measures": manifest.measures,
        "program": {uid: record_to_json(record) for uid, record in manifest.program.items()},
        "committed": manifest.committed,
        "in_flight": [_frames_to_json(frames) for frames in manifest.in_flight],
    }


def manifest_from_json(value: JsonObject) -> Manifest:
    """The manifest that ``value`` says.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it does not have the form of a manifest.
    """
    return Manifest(
        epoch=int(value["epoch"]),
        generation=int(value["generation"]),
        job_id=str(value["job_id"]),
        started=int(value["started"]),
        published=int(value["published"]),
        offsets=dict(value["offsets"]),
        operators={
            uid: [_operator_from_json(ack) for ack in acks]
            for uid, acks in value["operators"].items()
        },
        splits={
            uid: {key: _split_from_json(uid, key, split) for key, split in splits.items()}
            for uid, splits in value["splits"].items()
        },
        stages={int(level): int(parallelism) for level, parallelism in value["stages"].items()},
        max_parallelism=int(value["max_parallelism"]),
        final=bool(value["final"]),
        totals={name: int(total) for name, total in value["totals"].items()},
        measures={name: dict(measure) for name, measure in value["measures"].items()},
        program={uid: record_from_json(uid, record) for uid, record in value["program"].items()},
        committed=bool(value["committed"]),
        in_flight=[_frames_from_json(frames) for frames in value["in_flight"]],
    )


def _frames_to_json(frames: FramesInFlight) -> JsonObject:
    return {
        "stage": frames.stage,
        "subtask": frames.subtask,
        "edges": [list(edge) for edge in frames.edges],
        "cuts": list(frames.cuts),
        "count": frames.count,
        "file": dict(frames.file),
    }


def _frames_from_json(value: JsonObject) -> FramesInFlight:
    return FramesInFlight(
        stage=int(value["stage"]),
        subtask=int(value["subtask"]),
        edges=tuple(edge_name_from_json(edge) for edge in value["edges"]),
        count=int(value["count"]),
        file=_file_from_json(value["file"]),
        cuts=tuple(map(str, value["cuts"])),
    )


def edge_name_from_json(value: list[Any]) -> EdgeName:
    """The name of an edge that a list says.

    Raises:
        TypeError, ValueError: it does not.
    """
    source, target, input_index, tag, number = value
    tag = None if tag is None else str(tag)
    return EdgeName(str(source), str(target), int(input_index), tag, int(number))


def _operator_to_json(ack: OperatorAck) -> JsonObject:
    return {
        "uid": ack.uid,
        "subtask": ack.subtask,
        "watermark": ack.watermark,
        "idle": ack.idle,
        "state": _handle_to_json(ack.state),
        "operator_states": {
            name: _operator_state_to_json(handle) for name, handle in ack.operator_states.items()
        },
        "committables": [_to_base64(committable) for committable in ack.committables],
        "metrics": ack.metrics,
    }


def _operator_from_json(value: JsonObject) -> OperatorAck:
    return OperatorAck(
        uid=str(value["uid"]),
        subtask=int(value["subtask"]),
        watermark=int(value["watermark"]),
        idle=bool(value["idle"]),
        state=_handle_from_json(value["state"]),
        operator_states={
            str(name): _operator_state_from_json(state)
            for name, state in value["operator_states"].items()
        },
        committables=[b64decode(text, validate=True) for text in value["committables"]],
        metrics={
            name: dict(metric) if isinstance(metric, dict) else int(metric)
            for name, metric in value["metrics"].items()
        },
    )


def _operator_state_to_json(handle: OperatorStateHandle) -> JsonObject:
    value: JsonObject = {"kind": handle.kind.value, "count": handle.count}
    if handle.type:
        value["type"] = handle.type
    if handle.is_copy:
        value["copy"] = True
    if handle.file is None:
        value["elements"] = [_to_base64(element) for element in handle.inline]
    else:
        value["file"] = dict(handle.file)
    return value


def _operator_state_from_json(value: JsonObject) -> OperatorStateHandle:
    file = value.get("file")
    return OperatorStateHandle(
        kind=OperatorStateKind(value["kind"]),
        count=int(value["count"]),
        inline=tuple(b64decode(text, validate=True) for text in value.get("elements", ())),
        file=None if file is None else _file_from_json(file),
        type=str(value.get("type", "")),
        is_copy=bool(value.get("copy", False)),
    )


def _handle_to_json(handle: StateHandle | None) -> JsonObject | None:
    """Files are told apart by name, so that those of an epoch are few changes of those before."""
    if handle is None:
        return None
    files = {
        file["local"]: {"remote": file["remote"], "size": file["size"], "digest": file["digest"]}
        for file in handle["files"]
    }
    first, stop = handle["key_groups"]
    return {
        "backend": handle["backend"],
        "id": handle["id"],
        "key_groups": [first, stop],
        "files": files,
    }


def _handle_from_json(value: JsonObject | None) -> StateHandle | None:
    if value is None:
        return None
    first, stop = value["key_groups"]
    return {
        "backend": str(value["backend"]),
        "id": str(value["id"]),
        "key_groups": (int(first), int(stop)),
        "files": [
            _file_from_json({"local": local, **file}) for local, file in value["files"].items()
        ],
    }


def _file_from_json(file: JsonObject) -> StateFile:
    return {
        "local": str(file["local"]),
        "remote": str(file["remote"]),
        "size": int(file["size"]),
        "digest": str(file["digest"]),
    }


def _split_to_json(split: SplitState) -> JsonObject:
    return {
        "position": split.position,
        "finished": split.finished,
        "watermark": split.watermark,
        "idle": split.idle,
        "generator": _to_base64(split.generator),
        "records": split.records,
    }


def _split_from_json(uid: str, split_id: str, value: JsonObject) -> SplitState:
    return SplitState(
        source_uid=uid,
        split_id=split_id,
        position=int(value["position"]),
        finished=bool(value["finished"]),
        watermark=int(value["watermark"]),
        idle=bool(value["idle"]),
        generator=_from_base64(value["generator"]),
        records=int(value["records"]),
    )


def _to_base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _from_base64(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value, validate=True)


#: JSON.
Changes = dict[str, Any]


def difference(old: object, new: object) -> Changes:
    """What makes ``new`` of ``old``."""
    if old == new and type(old) is type(new):
        return {}
    if isinstance(old, dict) and isinstance(new, dict):
        return _of_objects(old, new)
    if isinstance(old, list) and isinstance(new, list):
        return _of_lists(old, new)
    return {"to": new}


def apply(old: Any, changes: Changes) -> Any:
    """What ``changes`` make of ``old``, which stays as it is.

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
