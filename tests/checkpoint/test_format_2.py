"""A checkpoint of format 2, as commit 8d10b21 wrote it, goes on in the program of today."""

from __future__ import annotations

import tarfile
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.checkpoint import format_2_program as kept
from tests.integration.job_runs import collected

from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

#: How the records behind the checkpoint are cut; results of late records depend on it.
BEHIND = 17


def _run(
    directory: Path,
    parallelism: int,
    *,
    limits: list[int],
    backend: str = "hashmap",
    changed: dict[str, str] | None = None,
) -> Counter[str]:
    """Run the program to its end; returns all results."""
    env = kept.build(parallelism, directory / "results", changed)
    limits = [parallelism * limit for limit in limits]
    graph = env.get_job_graph("format 2")
    MiniCluster(graph, directory / "checkpoint", limits=limits, state_backend=backend).run()
    return Counter(map(repr, collected(directory / "results")))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """What today's code makes of the program from its beginning."""
    directory = tmp_path_factory.mktemp("whole")
    return _run(directory, 2, limits=[*kept.CUTS, *[BEHIND] * 3])


def unpack(directory: Path) -> None:
    """Put what is kept into ``directory``."""
    with tarfile.open(kept.KEPT) as archive:
        archive.extractall(directory, filter="data")


@pytest.mark.parametrize(
    ("parallelism", "backend"), [(2, "hashmap"), (1, "rocksdb"), (3, "hashmap")]
)
def test_all_state_is_found(
    tmp_path: Path, whole: Counter[str], parallelism: int, backend: str
) -> None:
    unpack(tmp_path)
    before = len(collected(tmp_path / "results"))
    found = _run(tmp_path, parallelism, limits=[BEHIND] * 3, backend=backend)
    assert before < found.total() / 2
    assert found == whole, _difference(found, whole)


def _difference(found: Counter[str], wanted: Counter[str]) -> str:
    lines = [f"missing: {each}" for each in (wanted - found)]
    lines += [f"too much: {each}" for each in (found - wanted)]
    return "\n".join(["", *sorted(lines, key=lambda line: line.split("(", 1)[1])[:40]])
