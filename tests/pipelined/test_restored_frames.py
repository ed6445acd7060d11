"""What was in flight reaches the subtasks that it is for, and holds time back only till then.

Checkpoints are taken while the tasks behind the exchange stand still, as in ``test_unaligned.py``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined import test_unaligned as unaligned
from tests.pipelined.test_unaligned import SIZE, Timed, finish, job, results

from millstream.testing.mini_cluster import MiniCluster
from millstream.testing.sources import EPOCH, WATERMARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.checkpoint.model import Manifest

    Take = Callable[..., Manifest]

#: All of one key, so that other subtasks have none of it; and those of all keys.
ONE_KEY = [Timed((0, n), n % SIZE) for n in range(40)]
ALL_KEYS = [Timed((n % 6, n), 20 + n % SIZE) for n in range(200, 240)]

both_engines = pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "epochs"])


def windows_of(script: Iterable[Any]) -> list[tuple[int, int]]:
    """What ``Gather`` makes of a script in which nothing is late."""
    items = (item for item in script if isinstance(item, Timed))
    return sorted(
        Counter(item.value[0] * 1000 + item.timestamp // SIZE * SIZE for item in items).items()
    )


def stop_at_once(cluster: MiniCluster) -> Manifest:
    """End a run as a failure would; returns its last checkpoint."""
    cluster.close_instances()
    cluster.coordinator.close()
    last = cluster.coordinator.last
    assert last is not None
    assert not last.final
    assert last.in_flight != []
    return last


# -- channels that have nothing for a subtask --------------------------------------------------


@pytest.mark.sampled(every=3)
@both_engines
@pytest.mark.parametrize("parallelism", [2, 3, 4])
@pytest.mark.parametrize(
    "behind",
    [
        pytest.param([], id="end"),
        pytest.param([WATERMARK(1000), EPOCH, Timed((1, 999), 2000)], id="watermark"),
    ],
)
def test_a_channel_without_records_of_a_subtask_does_not_hold_its_time(
    tmp_path: Path,
    take: Take,
    monkeypatch: pytest.MonkeyPatch,
    behind: list[Any],
    parallelism: int,
    *,
    pipelined: bool,
) -> None:
    script = [*ONE_KEY, EPOCH, *ALL_KEYS, *behind]
    monkeypatch.setattr(unaligned, "SCRIPT", script)
    manifest = take(job(tmp_path), tmp_path)
    assert manifest.in_flight != []
    finish(job(tmp_path, parallelism), tmp_path, pipelined=pipelined)
    assert results(tmp_path, "late") == []
    assert results(tmp_path, "windows") == windows_of(script)


@both_engines
@pytest.mark.parametrize("parallelism", [2, 3, 4])
def test_such_a_channel_does_not_hold_the_last_epoch(
    tmp_path: Path,
    gate: set[int],
    overtaking: Callable[[int | None], None],
    monkeypatch: pytest.MonkeyPatch,
    parallelism: int,
    *,
    pipelined: bool,
) -> None:
    """The final epoch processes what was in flight, and closes all windows that lie in state."""
    first = [Timed((n % 6, n), n % SIZE) for n in range(200, 240)]
    script = [*first, EPOCH, *ONE_KEY]
    monkeypatch.setattr(unaligned, "SCRIPT", script)
    cluster = MiniCluster(job(tmp_path), tmp_path / "checkpoints", pipelined=True)
    assert cluster.run_epoch()
    gate.update(range(1, 9))
    overtaking(0)
    assert cluster.run_epoch()
    stop_at_once(cluster)
    gate.clear()
    overtaking(None)
    finish(job(tmp_path, parallelism), tmp_path, pipelined=pipelined)
    assert results(tmp_path, "late") == []
    assert results(tmp_path, "windows") == windows_of(script)
