"""A query that fails before it has asked for anything is started again; any other is not."""

from __future__ import annotations

import json
import logging
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.engines.spark import engine as spark_engine
from millstream.engines.spark.engine import SparkEngine, require_one_history
from millstream.errors import CorruptCheckpointError
from millstream.execution.planned_source import initial_offset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.checkpoint.model import Manifest

LATE = "Python worker failed to connect back."


class Query:
    """A query that has ended."""

    isActive = False  # noqa: N815 - Spark's
    runId = "query"  # noqa: N815 - Spark's

    def __init__(self, error: Exception) -> None:
        self.error = error

    def exception(self) -> Exception:
        return self.error

    def stop(self) -> None:
        """Nothing runs."""


class Session:
    """As much of a session as starting a query takes."""

    def __init__(self) -> None:
        self.sparkContext = self

    def broadcast(self, _: bytes) -> Session:
        return self

    def unpersist(self) -> None:
        """Nothing was sent."""


class Epochs:
    """The epochs of a query: whether Spark has asked for one."""

    def __init__(self, *, touched: bool) -> None:
        self.touched = touched
        self.error = None
        self.drained = threading.Event()
        self.ending = threading.Event()
        self.loop = self
        self.cancel_jobs: Callable[[], None] = lambda: None

    def latest_offset(self) -> dict[str, object]:
        return {}

    def wait_until_idle(self, seconds: float) -> None:
        """Nothing runs."""


@pytest.mark.parametrize(
    ("message", "touched", "starts"),
    [(LATE, False, 4), (LATE, True, 1), ("no such table", False, 1)],
)
def test_a_query_whose_process_has_not_connected_in_time(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    message: str,
    touched: bool,
    starts: int,
) -> None:
    started: list[str] = []

    def start_query(*_: object) -> Query:
        started.append("query")
        return Query(RuntimeError(message))

    monkeypatch.setattr(spark_engine, "require_one_history", lambda *_, **__: None)
    monkeypatch.setattr(spark_engine, "has_spark_sources", lambda _: False)
    coordinator = SimpleNamespace(is_fenced=lambda: False)
    job = SimpleNamespace(graph="graph", storage=None)
    run = SimpleNamespace(job=job, last=None, coordinator=coordinator, run_id="run")
    monkeypatch.setattr(spark_engine, "EpochJob", lambda *_, **__: None)
    monkeypatch.setattr(spark_engine, "QueryEpochs", lambda *_: Epochs(touched=touched))
    monkeypatch.setattr(SparkEngine, "_start_query", start_query)
    engine = SparkEngine(cast("Any", Session()), [], cast("Any", None))
    caplog.set_level(logging.WARNING, "millstream")
    with pytest.raises(RuntimeError, match=message):
        engine.execute(cast("Any", run), threading.Event())
    assert len(started) == starts
    assert len(caplog.messages) == starts - 1
    assert all(LATE in said for said in caplog.messages)


def test_a_log_of_sparks_that_is_ahead_of_the_manifests(tmp_path: Path) -> None:
    """Behind them it may be: another engine has gone on."""
    storage = LocalStorage(tmp_path)
    require_one_history(storage, None)
    log(tmp_path, {9: 19, 10: 20})
    for epoch in (19, 20, 31):
        require_one_history(storage, manifest(epoch))
    for last in (None, manifest(18)):
        with pytest.raises(
            CorruptCheckpointError, match=r"checkpoint 20, .* checkpoints are missing"
        ):
            require_one_history(storage, last)


def test_a_log_of_sparks_that_is_behind_the_manifests_of_dataframes(tmp_path: Path) -> None:
    """It would make a micro-batch anew whose epoch stands, of other rows, and that is skipped."""
    storage = LocalStorage(tmp_path)
    require_one_history(storage, None, spark_sources=True)
    with pytest.raises(
        CorruptCheckpointError, match=r"micro-batch -1, .* checkpoint 3 .* one copy"
    ):
        require_one_history(storage, manifest(3), spark_sources=True)
    # The offset of 18 is that of 16: only a DataFrame had new rows since.
    log(tmp_path, {17: 16, 18: 16})
    for epoch in (17, 18):
        require_one_history(storage, manifest(epoch), spark_sources=True)
    for last in (None, manifest(16), manifest(19), manifest(30)):
        with pytest.raises(CorruptCheckpointError, match="micro-batch 18"):
            require_one_history(storage, last, spark_sources=True)
    log(tmp_path, {19: 20})
    with pytest.raises(CorruptCheckpointError, match="offset of checkpoint 20"):
        require_one_history(storage, manifest(18), spark_sources=True)


def log(directory: Path, epochs: dict[int, int]) -> None:
    """Write Spark's offset log: micro-batch -> the epoch that its offset is of."""
    (directory / "spark" / "offsets").mkdir(parents=True, exist_ok=True)
    for batch, epoch in epochs.items():
        offset = {**initial_offset(), "epoch": epoch}
        text = f'v1\n{{"batchTimestampMs": 5}}\n{json.dumps(offset)}\n'
        (directory / "spark" / "offsets" / str(batch)).write_text(text)


def manifest(epoch: int) -> Manifest:
    """As much of a manifest as is looked at."""
    return cast("Manifest", SimpleNamespace(epoch=epoch))
