"""Jobs of the matrix whose slots reach each other, and their driver, over a slow network.

Delays and jitter are those of a seed; bytes go one after the other at a small rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.matrix import pipelined_driver
from tests.matrix.matrix_driver import RECORDS, expected
from tests.matrix.test_other_modes import read
from tests.support.proxied_slots import ProxiedSlots
from tests.support.slot_proxy import DRIVER, SlotProxy

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.engines.pipelined import run_loop
from millstream.engines.pipelined.engine import PipelinedEngine, slots_of
from millstream.execution.driver import check_job, start_job

if TYPE_CHECKING:
    from tests.matrix.conftest import Matrix

pytestmark = pytest.mark.extended

#: Seconds, and bytes per second.
LEAST_DELAY, MOST_DELAY, RATE = 0.002, 0.03, 60_000
LEAST_CHECKPOINTS = 3


def slow(proxy: SlotProxy) -> None:
    for source, target in ((0, 1), (1, 0), (0, DRIVER), (DRIVER, 0), (1, DRIVER), (DRIVER, 1)):
        how = proxy.conditions(source, target)
        how.least_delay, how.most_delay = LEAST_DELAY, MOST_DELAY
        if DRIVER not in {source, target}:
            how.bytes_per_second = RATE


@pytest.mark.parametrize("kind", ["file", pytest.param("kafka", marks=pytest.mark.soak)])
def test_results_are_exact_and_checkpoints_complete(
    kind: str, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, directory = matrix.new_target(kind)
    checkpoints = directory / "checkpoints"
    settings = {
        "restart-strategy.type": "none",
        "millstream.progress": "off",
        "millstream.local-directory": str(directory / "local"),
    }
    graph = pipelined_driver.environment(target, str(checkpoints), settings).get_job_graph("slow")
    check_job(graph)
    host = ProxiedSlots(slow, seed=3)
    monkeypatch.setattr(run_loop, "Begin", host.begin)
    start_job(graph, PipelinedEngine(slots_of(graph), host)).get_job_execution_result()
    (seen,) = read(target, RECORDS)
    assert sorted(seen) == expected()
    assert target.leftovers() == []
    manifests = [each.manifest for each in ManifestLog(LocalStorage(checkpoints)).entries()]
    assert max(each.epoch for each in manifests if each is not None) >= LEAST_CHECKPOINTS
    assert host.runs == 1
