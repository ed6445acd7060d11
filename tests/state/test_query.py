"""State of a key is read from a checkpoint: of every kind, with and without time to live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.checkpoint import kept_program as program

from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.errors import StateError
from millstream.state.query import query_checkpoint
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path


def test_oracle_every_kind_of_state(tmp_path: Path) -> None:
    graph = program.build(2, tmp_path / "results").get_job_graph("read")
    cluster = MiniCluster(graph, tmp_path / "checkpoint", limits=[24] * 9)
    cluster.run(3)
    cluster.coordinator.close()
    storage = cluster.job.storage
    manifest = inspect_checkpoint(storage).manifest
    read = program.EVENTS[: sum(s.position for s in manifest.splits["events"].values())]

    def found(state: str, key: object = "a") -> Any:
        return query_checkpoint(storage, manifest, "keeps", state, key).value

    for key in {each[0] for each in read}:
        values = [number for each, number, _ in read if each == key]
        assert (
            found("value", key) == found("sum", key) == found("timed value", key) + sum(values[:-1])
        )
        assert found("items", key) == found("timed list", key) == values
        assert found("map", key) == {str(number % 4): number for number in values}
        assert set(found("timed map", key)) == {number % 3 for number in values}
        assert found("row", key).place == program.Place("x", values[-1])
        assert found("total", key) == (key, values)
    assert found("value", "nowhere") is None
    timed = query_checkpoint(storage, manifest, "keeps", "timed value", "a")
    assert timed.last_access is not None
    assert abs(timed.last_access - manifest.published) < 600_000
    with pytest.raises(StateError, match="is timers state, which cannot be queried by key"):
        found("\0timers.event")
