"""The sinks of the matrix in the modes AT_LEAST_ONCE and NONE, where an epoch can be cut in two."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.matrix.matrix_driver import PER_EPOCH, RECORDS, expected, job_graph
from tests.matrix.matrix_targets import COMMITTED

from millstream import crash_points
from millstream.datastream import CheckpointingMode
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.matrix.conftest import Matrix
    from tests.matrix.matrix_targets import MatrixTarget, Result

pytestmark = [pytest.mark.both_engines(every=5), pytest.mark.extended]

#: Seconds until a reader has seen what is committed.
PATIENCE = 120
DEATHS = 2


def cluster(target: MatrixTarget, directory: Path, mode: CheckpointingMode) -> MiniCluster:
    graph = job_graph(target, mode)
    return MiniCluster(graph, directory / "checkpoints", limits=itertools.repeat(PER_EPOCH))


def read(target: MatrixTarget, most: int) -> list[list[Result]]:
    """What each sink shows when all its records are visible, or no more than ``most`` come."""
    reader = target.reader()
    try:
        end = time.monotonic() + PATIENCE
        while min(map(len, seen := reader.look())) < most and time.monotonic() < end:
            pass
        return [list(rows) for rows in seen]
    finally:
        reader.close()


@contextlib.contextmanager
def dying_at(point: str) -> Iterator[None]:
    """The block ends at a crash point, as if the process had died there."""

    def die(_: str) -> None:
        raise InterruptedError

    crash_points.arm(point, die)
    try:
        with pytest.raises(InterruptedError):
            yield
    finally:
        crash_points.arm("")


@pytest.mark.parametrize("kind", COMMITTED)
def test_at_least_once(kind: str, matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that die between the commit and the manifest write the epoch again."""
    target, directory = matrix.new_target(kind)

    def die(*_: object) -> int:
        raise InterruptedError

    for death in range(DEATHS):
        run = cluster(target, directory, CheckpointingMode.AT_LEAST_ONCE)
        run.run(0 if death else 2)
        with monkeypatch.context() as patch:
            patch.setattr(run.coordinator._log, "publish", die)
            with pytest.raises(InterruptedError):
                run.run_epoch()
        run.close_instances()
    last = cluster(target, directory, CheckpointingMode.AT_LEAST_ONCE).run()
    assert last is not None
    assert last.final
    # A write-ahead sink asks its target whether it has the epoch.
    deaths = 0 if kind == "write-ahead" else DEATHS
    for seen in read(target, RECORDS + deaths * PER_EPOCH):
        assert sorted(set(seen)) == expected()  # none lost, and state is exact
        again = Counter(seen) - Counter(set(seen))
        assert set(again.values()) == ({deaths} if deaths else set())
        assert len(again) == (PER_EPOCH if deaths else 0)
    assert target.leftovers() == []


@pytest.mark.parametrize("kind", COMMITTED)
@pytest.mark.parametrize("point", ["task.ack.before", "epoch.acks.after"])
def test_at_most_once(kind: str, point: str, matrix: Matrix) -> None:
    """A run that dies before the commit loses the epoch, and nothing comes twice."""
    target, directory = matrix.new_target(kind)
    run = cluster(target, directory, CheckpointingMode.NONE)
    run.run(2)

    with dying_at(point):
        run.run_epoch()
    run.close_instances()
    last = cluster(target, directory, CheckpointingMode.NONE).run()
    assert last is not None
    assert last.final
    for seen in read(target, RECORDS - PER_EPOCH):
        ids = sorted(id_ for _, _, id_ in seen)
        assert ids == [*range(2 * PER_EPOCH), *range(3 * PER_EPOCH, RECORDS)]
    assert target.leftovers() == []
