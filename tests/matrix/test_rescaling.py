"""Every sink of the matrix in a job that dies and goes on with another parallelism."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.matrix.matrix_driver import PER_EPOCH, RECORDS, expected, job_graph
from tests.matrix.matrix_targets import COMMITTED
from tests.matrix.test_other_modes import dying_at, read

from millstream.datastream import CheckpointingMode
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.matrix.conftest import Matrix
    from tests.matrix.matrix_targets import MatrixTarget

pytestmark = [pytest.mark.both_engines(every=7), pytest.mark.extended]

PARALLELISMS = [2, 3, 1, 2, 1]
#: Where the runs but the last die: with votes and without a manifest, with a manifest whose output
#: is pending, and with it committed and not cleaned up.
POINTS = ["epoch.acks.after", "manifest.publish.after", "sink.commit.after", "task.ack.before"]


def cluster(target: MatrixTarget, directory: Path, parallelism: int) -> MiniCluster:
    graph = job_graph(target, CheckpointingMode.EXACTLY_ONCE, parallelism)
    return MiniCluster(graph, directory / "checkpoints", limits=itertools.repeat(PER_EPOCH))


@pytest.mark.parametrize("kind", COMMITTED)
@pytest.mark.parametrize("shift", range(len(POINTS)))
def test_rescaling(kind: str, shift: int, matrix: Matrix) -> None:
    """What one parallelism has pre-committed, another commits or drops."""
    target, directory = matrix.new_target(kind)
    points = POINTS[shift:] + POINTS[:shift]
    for point, parallelism in zip(points, PARALLELISMS, strict=False):
        run = cluster(target, directory, parallelism)
        run.run_epoch()
        with dying_at(point):
            run.run_epoch()
        run.close_instances()
    last = cluster(target, directory, PARALLELISMS[-1]).run()
    assert last is not None
    assert last.final
    for seen in read(target, RECORDS):
        assert sorted(seen) == expected()
    assert target.leftovers() == []
