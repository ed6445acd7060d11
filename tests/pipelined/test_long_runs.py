"""Runs that live for a million checkpoints: what they keep does not grow with their number."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.checkpoint.model import Manifest
from millstream.common import Types, WatermarkStrategy
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.connectors.datagen import DataGeneratorSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

#: Far more than are under way and retained together.
CHECKPOINTS = 30


def test_a_run_keeps_nothing_of_checkpoints_that_are_over(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    directory = tmp_path / "checkpoints"
    env = make(
        1,
        {
            "execution.checkpointing.interval": "1",
            "execution.checkpointing.dir": str(directory),
        },
    )
    numbers = DataGeneratorSource(lambda n: n, None, 100.0, Types.LONG(), splits=1)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    stream.sink_to(DiscardingSink())
    client = env.execute_async("long")
    log = ManifestLog(LocalStorage(directory, fsync=False))

    def epoch() -> int:
        last = log.latest()
        return -1 if last is None else last.epoch

    eventually(lambda: epoch() >= CHECKPOINTS, "many checkpoints")
    gc.collect()
    kept = {each.epoch for each in gc.get_objects() if isinstance(each, Manifest)}
    client.cancel().result()
    assert len(kept) < CHECKPOINTS // 2, kept
