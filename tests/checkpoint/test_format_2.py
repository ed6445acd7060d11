"""A checkpoint of format 2, as commit 8d10b21 wrote it, goes on in the program of today."""

from __future__ import annotations

import tarfile
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.checkpoint import format_2_program as kept
from tests.integration.job_runs import collected

from millstream.errors import IncompatibleProgramError
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


#: Windows of every layout that go on in another one: what they were, and what they are.
CHANGED = {
    "tumbling reduce": "tumbling reduce purging late",
    "tumbling aggregate": "tumbling aggregate continuous",
    "tumbling process": "tumbling sum",
    "tumbling apply": "tumbling reduce counted",
    "tumbling sum": "tumbling sum counting",
    "tumbling many": "tumbling many purging",
    "tumbling many purging": "tumbling many",
    "tumbling reduce late": "tumbling reduce",
    "tumbling fires late": "tumbling fires late continuous",
    "tumbling fires continuous": "tumbling fires late",
    "tumbling many counted": "tumbling many",
    "tumbling process counting": "tumbling process",
    "sliding many": "sliding many purging",
    "sliding reduce": "sliding reduce counting",
    "sliding process": "sliding aggregate",
    "sessions reduce": "sessions reduce late",
    "sessions many": "sessions many purging",
    "sessions many late": "sessions many purging late",
    "sessions sum purging": "sessions sum",
    "sessions process late": "sessions process",
    "sessions process counted": "sessions many",
    "dynamic sum late": "sessions sum",
    "global reduce counting": "global reduce leaping",
}


#: Those of them whose results are the same, changed or not.
UNALTERED = {"tumbling many", "tumbling many purging", "sliding many", "sessions many"}


def test_changed_windows_are_converted(tmp_path: Path, whole: Counter[str]) -> None:
    """As they are from where today's code has come to; that these are right a model says."""
    unpack(tmp_path / "kept")
    fresh = tmp_path / "fresh"
    graph = kept.build(2, fresh / "results").get_job_graph("format 2")
    limits = [2 * cut for cut in kept.CUTS]
    cluster = MiniCluster(graph, fresh / "checkpoint", limits=limits)
    cluster.run(len(kept.CUTS))
    cluster.coordinator.close()
    wanted = _run(fresh, 2, limits=[BEHIND] * 3, changed=CHANGED)
    found = _run(tmp_path / "kept", 3, limits=[BEHIND] * 3, changed=CHANGED)
    assert found == wanted, _difference(found, wanted)
    found, wanted = (
        Counter({each: count for each, count in some.items() if each.split("'")[1] in UNALTERED})
        for some in (found, whole)
    )
    assert wanted
    assert found == wanted, _difference(found, wanted)


def test_what_cannot_be_converted_is_refused_by_name(tmp_path: Path) -> None:
    unpack(tmp_path)
    changed = {
        "tumbling sum": "tumbling reduce",
        "sliding process": "sliding sum",
        "tumbling process": "tumbling many",
        "sessions reduce": "tumbling reduce",
        "tumbling apply": "tumbling reduce timed",
    }
    graph = kept.build(2, tmp_path / "results", changed).get_job_graph("format 2")
    with pytest.raises(IncompatibleProgramError) as caught:
        MiniCluster(graph, tmp_path / "checkpoint")
    told = str(caught.value)
    assert told.count("would not find its windows") == len(changed)
    for name in changed:
        assert f"operator {name!r} (format_2_program.py:" in told
    assert "of Sum(1), reduced values cannot be made" in told
    assert "windows that overlap cannot be cut into panes" in told
    assert "stored without timestamps, which First looks at" in told
    assert "these are other windows" in told
    assert "stored without timestamps, which TimeEvictor looks at" in told


def _difference(found: Counter[str], wanted: Counter[str]) -> str:
    lines = [f"missing: {each}" for each in (wanted - found)]
    lines += [f"too much: {each}" for each in (found - wanted)]
    return "\n".join(["", *sorted(lines, key=lambda line: line.split("(", 1)[1])[:40]])
