"""Votes of an epoch and the manifest made of them."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint import Manifest, OperatorAck, SplitState, TaskAck
from millstream.checkpoint.coordinator import select_acks
from millstream.checkpoint.model import OperatorRecord, difference, digest_of
from millstream.checkpoint.publish import EpochMetadata, make_manifest
from millstream.errors import InconsistentEpochError

if TYPE_CHECKING:
    from millstream.contracts.key_value_store import StateFile


def ack(
    stage: int, subtask: int, attempt: str, *consumed: tuple[int, int, str], epoch: int = 5
) -> TaskAck:
    return TaskAck(epoch, stage, subtask, attempt, consumed=list(consumed))


EXPECTED = {(0, 0), (0, 1), (1, 0), (1, 1)}
GOOD = [
    ack(0, 0, "a"),
    ack(0, 1, "b"),
    ack(1, 0, "c", (0, 0, "a"), (0, 1, "b")),
    ack(1, 1, "d", (0, 0, "a"), (0, 1, "b")),
]


def attempts(acks: list[TaskAck]) -> list[str]:
    return [ack.attempt for ack in acks]


def test_all_votes_in_any_order() -> None:
    assert attempts(select_acks(5, GOOD, EXPECTED)) == ["a", "b", "c", "d"]
    assert attempts(select_acks(5, GOOD[::-1], EXPECTED)) == ["a", "b", "c", "d"]


def test_the_same_ack_from_several_consumers_counts_once() -> None:
    assert attempts(select_acks(5, GOOD + GOOD[:2], EXPECTED)) == ["a", "b", "c", "d"]


def test_consumers_decide_between_attempts() -> None:
    acks = [ack(0, 0, "lost"), *GOOD, ack(0, 1, "lost too")]
    assert attempts(select_acks(5, acks, EXPECTED)) == ["a", "b", "c", "d"]


def test_what_a_lost_attempt_read_does_not_count() -> None:
    acks = [
        ack(0, 0, "a"),
        ack(0, 0, "a2"),
        ack(1, 0, "lost", (0, 0, "a")),
        ack(1, 0, "won", (0, 0, "a2")),
        ack(2, 0, "end", (1, 0, "won"), (0, 0, "a2")),
    ]
    acks = select_acks(5, acks, {(0, 0), (1, 0), (2, 0)})
    assert attempts(acks) == ["a2", "won", "end"]


@pytest.mark.parametrize(
    ("acks", "message"),
    [
        (GOOD[:3], "no acknowledgement came from stage 1 subtask 1"),
        ([], "stage 0 subtask 0, stage 0 subtask 1, stage 1 subtask 0"),
        ([*GOOD, ack(1, 2, "x")], "stage 1 subtask 2 attempt x is not a task"),
        ([*GOOD[:3], ack(1, 1, "d", epoch=4)], "acknowledgement of checkpoint 4"),
        ([*GOOD[:3], ack(1, 1, "d", (0, 0, "other"))], "read attempt a"),
        (
            [GOOD[0], GOOD[1], ack(1, 0, "c", (0, 0, "x")), ack(1, 1, "d", (0, 0, "x"))],
            "attempt x, which sent no acknowledgement",
        ),
        ([*GOOD, ack(1, 1, "d2")], "2 attempts of stage 1 subtask 1"),
        ([*GOOD[:3], ack(1, 1, "d", (1, 0, "c"))], "not a task before it"),
        ([*GOOD[:3], ack(1, 1, "d", (0, 7, "c"))], "not a task before it"),
    ],
)
def test_refused(acks: list[TaskAck], message: str) -> None:
    with pytest.raises(InconsistentEpochError, match=r"checkpoint 5 .*" + message):
        select_acks(5, acks, EXPECTED)


def about(epoch: int = 1, stages: dict[int, int] | None = None) -> EpochMetadata:
    return EpochMetadata(
        epoch,
        10,
        {"p": (1, 2)},
        stages or {0: 2},
        128,
        generation=1,
        job_id="job",
        published=20,
    )


def task(
    subtask: int, operators: list[OperatorAck] | None = None, splits: list[SplitState] | None = None
) -> TaskAck:
    return TaskAck(0, 0, subtask, "x", operators or [], splits or [])


def operator(uid: str, subtask: int, watermark: int = 0, **metrics: int) -> OperatorAck:
    return OperatorAck(
        uid, subtask, watermark, committables=[b"%d" % watermark], metrics=dict(metrics)
    )


def gauge(uid: str, subtask: int) -> OperatorAck:
    return OperatorAck(uid, subtask, 0, metrics={"n": {"kind": "gauge", "value": 7}})


def split(key: str, position: int, records: int = 0, *, finished: bool = False) -> SplitState:
    return SplitState("source", key, position, finished, 0, records=records)


def first() -> Manifest:
    return make_manifest(
        about(0),
        [
            task(0, [operator("a", 0, 1, n=3), operator("b", 0, 1)], [split("x", 5, 5)]),
            task(
                1, [operator("a", 1, 2, n=4)], [split("y", 7, 7), split("z", 9, 9, finished=True)]
            ),
        ],
        None,
    )


def test_first_manifest() -> None:
    manifest = first()
    assert {uid: [a.subtask for a in acks] for uid, acks in manifest.operators.items()} == {
        "a": [0, 1],
        "b": [0],
    }
    assert {key: s.position for key, s in manifest.splits["source"].items()} == {"x": 5, "y": 7}
    assert manifest.totals == {"a.n": 7, "source.numRecordsIn": 21}
    assert manifest.offsets == {"p": [1, 2]}


def test_what_was_not_touched_is_carried_forward() -> None:
    manifest = make_manifest(
        about(), [task(1, [operator("a", 1, 8, n=1)], [split("x", 6, 1)])], first()
    )
    assert [(a.watermark, a.committables) for a in manifest.operators["a"]] == [
        (1, []),
        (8, [b"8"]),
    ]
    assert [(a.watermark, a.committables) for a in manifest.operators["b"]] == [(1, [])]
    assert {key: (s.position, s.records) for key, s in manifest.splits["source"].items()} == {
        "x": (6, 1),
        "y": (7, 0),
    }
    assert manifest.totals == {"a.n": 8, "source.numRecordsIn": 22}


def test_finished_splits_leave() -> None:
    manifest = make_manifest(about(), [task(0, [], [split("x", 9, finished=True)])], first())
    assert list(manifest.splits["source"]) == ["y"]


def test_old_subtasks_do_not_stay_after_a_change_of_parallelism() -> None:
    manifest = make_manifest(about(stages={0: 1}), [task(0, [operator("a", 0, 9)])], first())
    assert [a.watermark for a in manifest.operators["a"]] == [9]
    assert [a.watermark for a in manifest.operators["b"]] == [1]


def test_old_subtasks_do_not_stay_where_the_stage_is_as_wide_as_before() -> None:
    """Another operator of it may have kept its parallelism."""
    program = {uid: OperatorRecord(uid, "operator") for uid in "ab"}
    last = make_manifest(
        replace(about(0), program=program),
        [task(0, [gauge("a", 0)]), task(1, [gauge("a", 1)])],
        None,
    )
    assert last.measures["a.n"] == {"kind": "gauge", "values": {"0": 7, "1": 7}}
    manifest = make_manifest(
        replace(about(), program=program),
        [task(0, [gauge("a", 0)]), task(1, [gauge("b", 1)])],
        last,
    )
    assert [each.subtask for each in manifest.operators["a"]] == [0]
    assert manifest.measures["a.n"] == {"kind": "gauge", "values": {"0": 7}}


def test_a_source_that_counts_its_records_itself_is_not_counted_twice() -> None:
    acks = [task(0, [operator("source", 0, numRecordsIn=4)], [split("x", 6, 4)])]
    assert make_manifest(about(), acks, None).totals == {"source.numRecordsIn": 4}


def test_two_votes_for_one_thing() -> None:
    with pytest.raises(InconsistentEpochError, match="operator a subtask 0"):
        make_manifest(about(), [task(0, [operator("a", 0)]), task(1, [operator("a", 0)])], None)
    with pytest.raises(InconsistentEpochError, match="split x of source source"):
        make_manifest(about(), [task(0, [], [split("x", 1)]), task(1, [], [split("x", 1)])], None)


def test_state_files_have_digests() -> None:
    content = b"state"
    size, digest = digest_of([content[:2], content[2:]])
    assert digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
    file: StateFile = {"local": "a", "remote": "state/u/a", "size": size, "digest": digest}
    assert difference([content], file) is None
    assert "its digest is sha256:" in str(difference([b"State"], file))
    assert difference([b"sta"], file) == "it has 3 bytes instead of 5"
    for other in ("md5:0", f"crc32:{zlib.crc32(content):08x}", "state"):
        assert "unknown kind" in str(difference([content], {**file, "digest": other}))
