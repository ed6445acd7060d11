"""Frames through files: each goes to one subtask, in the order that a sort gives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from millstream.engines.local import worker
from millstream.engines.local.worker import FrameFiles, StageFrames, write_frames
from millstream.runtime.exchange import ACK, ACKNOWLEDGEMENT_STAGE, FRAME_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Columns of ``FRAME_SCHEMA`` that order frames.
ORDER = ("watermark", "edge", "channel", "sequence")


def random_frames(chance: random.Random, tasks: int) -> list[list[dict[str, object]]]:
    """What some tasks make: no two frames alike in what orders them."""
    made = []
    number = 0
    for _ in range(tasks):
        rows = []
        for _ in range(chance.randrange(30)):
            number += 1
            rows.append(
                {
                    "stage": chance.choice([1, 2]),
                    "subtask": chance.randrange(5),
                    "edge": chance.randrange(3),
                    "kind": 0,
                    "channel": chance.randrange(3),
                    "watermark": chance.randrange(4),
                    "sequence": number,
                    "payload": bytes([number % 251]) * chance.randrange(20),
                }
            )
        made.append(rows)
    return made


@pytest.mark.parametrize("seed", range(5))
def test_oracle_what_each_subtask_reads(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    tasks = random_frames(chance, 4)
    paths, acks = [], []
    for number, rows in enumerate(tasks):
        ack = {**dict.fromkeys(FRAME_SCHEMA.names, 0), "payload": b"ack %d" % number}
        last = {**ack, "stage": ACKNOWLEDGEMENT_STAGE, "kind": ACK}
        cut = chance.randrange(len(rows) + 1)
        batches = [
            pa.RecordBatch.from_pylist(part, schema=FRAME_SCHEMA)
            for part in (rows[:cut], [*rows[cut:], last])
        ]
        paths.append(tmp_path / str(number))
        acks += write_frames(batches, paths[-1])
    assert acks == [b"ack 0", b"ack 1", b"ack 2", b"ack 3"]
    parallelism = 3
    for subtask in range(parallelism):
        found = [
            row
            for batch in StageFrames(paths, parallelism).addressed(subtask)
            for row in batch.to_pylist()
        ]
        mine = [row for rows in tasks for row in rows if _target(row) % parallelism == subtask]
        assert found == sorted(mine, key=lambda row: [row[name] for name in ORDER])


def _target(row: dict[str, object]) -> int:
    target = row["subtask"]
    assert isinstance(target, int)
    return target


def test_a_stage_that_sends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "frames"
    assert write_frames([], path) == []
    assert list(FrameFiles().read([path], 0, 2)) == []
    assert list(FrameFiles().read([], 0, 2)) == []


def test_a_stage_is_mapped_once_and_again_when_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "frames"
    row = {**dict.fromkeys(FRAME_SCHEMA.names, 0), "payload": b"first"}
    made = []

    class Counted(StageFrames):
        def __init__(self, paths: Sequence[Path], parallelism: int) -> None:
            made.append(paths)
            super().__init__(paths, parallelism)

    monkeypatch.setattr(worker, "StageFrames", Counted)
    files = FrameFiles()

    def payloads(subtask: int) -> list[bytes]:
        found = files.read([path], subtask, 2)
        return [each for batch in found for each in batch.column("payload").to_pylist()]

    rows = [row, {**row, "subtask": 1, "payload": b"second"}]
    write_frames([pa.RecordBatch.from_pylist(rows, schema=FRAME_SCHEMA)], path)
    assert (payloads(0), payloads(1)) == ([b"first"], [b"second"])
    assert len(made) == 1
    path.unlink()
    again = [{**row, "payload": b"again"}]
    write_frames([pa.RecordBatch.from_pylist(again, schema=FRAME_SCHEMA)], path)
    assert (payloads(0), payloads(1)) == ([b"again"], [])
    assert len(made) == 2
