"""Checkpoints that each release wrote are restored by the program of today."""

from __future__ import annotations

import tarfile
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.checkpoint import kept_program as kept
from tests.integration.job_runs import SplitsSource, collect, collected, environment, event_time

from millstream.cli.main import main
from millstream.common import Types
from millstream.configuration import options
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import IncompatibleProgramError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Releases of which a checkpoint is kept.
RELEASES = sorted(path.name.removesuffix(".tar.gz") for path in kept.KEPT.glob("*.tar.gz"))
#: How the records behind the checkpoint are cut; results of late records depend on it.
BEHIND = 17


def _run(
    directory: Path,
    parallelism: int,
    *,
    limits: list[int],
    backend: str = "hashmap",
    changed: dict[str, str] | None = None,
    max_parallelism: int | None = None,
) -> Counter[str]:
    """Run the program to its end; returns all results."""
    env = kept.build(parallelism, directory / "results", changed)
    if max_parallelism is not None:
        env.set_max_parallelism(max_parallelism)
    limits = [parallelism * limit for limit in limits]
    graph = env.get_job_graph(kept.JOB)
    MiniCluster(graph, directory / "checkpoint", limits=limits, state_backend=backend).run()
    return Counter(repr(_settled(each)) for each in collected(directory / "results"))


def _settled(result: Any) -> Any:
    """A result without what depends on how batches are cut.

    Which side of "both" comes first is not defined.  Each record is on both, in the same order, so
    the side that it came from has counted the records of its key up to it, whatever the other has.
    """
    name, value = result
    if name != "both":
        return result
    key, number, counts = value
    own = sum(each[0] == key and each[1] <= number for each in kept.EVENTS)
    return name, (key, number, own if own in dict(counts).values() else counts)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """What today's code makes of the program from its beginning."""
    directory = tmp_path_factory.mktemp("whole")
    return _run(directory, 2, limits=[*kept.CUTS, *[BEHIND] * 3])


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Each release of which a checkpoint is kept."""
    return str(request.param)


def test_a_checkpoint_is_kept() -> None:
    assert "0.1.0" in RELEASES


def unpack(directory: Path, release: str) -> None:
    """Put what is kept of a release into ``directory``."""
    with tarfile.open(kept.KEPT / f"{release}.tar.gz") as archive:
        archive.extractall(directory, filter="data")


@pytest.mark.extended
@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("parallelism", "backend"),
    [
        (2, "hashmap"),
        pytest.param(1, "rocksdb", marks=pytest.mark.extended),
        pytest.param(3, "hashmap", marks=pytest.mark.extended),
    ],
)
def test_all_state_is_found(
    tmp_path: Path, whole: Counter[str], release: str, parallelism: int, backend: str
) -> None:
    unpack(tmp_path, release)
    before = len(collected(tmp_path / "results"))
    found = _run(tmp_path, parallelism, limits=[BEHIND] * 3, backend=backend)
    assert before < found.total() / 2
    assert found == whole, _difference(found, whole)


@pytest.mark.both_engines
@pytest.mark.parametrize(
    "release", sorted(path.name.removesuffix(".tar.gz") for path in kept.KEPT_SAVEPOINTS.iterdir())
)
def test_another_job_starts_from_a_savepoint_of_each_release(
    tmp_path: Path, whole: Counter[str], release: str
) -> None:
    with tarfile.open(kept.KEPT_SAVEPOINTS / f"{release}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    env = kept.build(3, tmp_path / "results")
    path = options.SAVEPOINT_PATH.key
    env.get_configuration().set_string(path, str(tmp_path / "savepoint"))
    graph = env.get_job_graph("another")
    MiniCluster(graph, tmp_path / "checkpoint", limits=[3 * BEHIND] * 3).run()
    found = Counter(repr(_settled(each)) for each in collected(tmp_path / "results"))
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


@pytest.mark.slow
def test_changed_windows_are_converted(tmp_path: Path, whole: Counter[str], release: str) -> None:
    """As they are from where today's code has come to; that these are right a model says."""
    unpack(tmp_path / "kept", release)
    fresh = tmp_path / "fresh"
    graph = kept.build(2, fresh / "results").get_job_graph(kept.JOB)
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


class Fires(kept.Fires):
    """Asks for a state that is new before it asks for the old ones."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        new = context.global_state().get_state(ValueStateDescriptor("new"))
        new.update((new.value() or 0) + 1)
        yield from super().process(key, context, elements)


@pytest.mark.extended
@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("changed", ["late", "continuous"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_what_functions_kept_of_windows_outlasts_an_epoch_that_keeps_nothing(
    tmp_path: Path, release: str, changed: str, backend: str, parallelism: int
) -> None:
    unpack(tmp_path, release)
    kind = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    quiet = [(kept.QUIET, number, 261) for number in range(36, 40)]
    late = [(key, number, 150) for number, key in enumerate("abc", 40)]
    env = environment(parallelism, **{options.IGNORE_UNCLAIMED_STATE.key: "true"})
    source = SplitsSource([[*kept.EVENTS[: sum(kept.CUTS)], *quiet, *late]], kind)
    events = env.from_source(source, event_time(20), "events").uid("events")
    windows = events.key_by(lambda event: event[0]).window(kept.ASSIGNERS["tumbling"])
    windows = kept.CHANGES[changed](windows.allowed_lateness(60))
    collect(windows.process(Fires()).uid("tumbling-fires-late"), tmp_path, "fires")
    graph = env.get_job_graph(kept.JOB)
    MiniCluster(graph, tmp_path / "checkpoint", limits=[4] * 9, state_backend=backend).run()
    fired = {each[0]: each[2] for each in collected(tmp_path, "fires") if each[1] == 100}
    assert fired == dict.fromkeys("abc", 2)  # once before the checkpoint


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("groups", "backend"),
    [((50, 300), "hashmap"), pytest.param((200, 3), "rocksdb", marks=pytest.mark.extended)],
)
def test_all_state_is_found_after_two_changes_of_max_parallelism(
    tmp_path: Path, whole: Counter[str], release: str, groups: tuple[int, int], backend: str
) -> None:
    unpack(tmp_path, release)
    first = kept.build(3, tmp_path / "results")
    first.set_max_parallelism(groups[0])
    cluster = MiniCluster(
        first.get_job_graph(kept.JOB),
        tmp_path / "checkpoint",
        limits=[3 * BEHIND] * 2,
        state_backend=backend,
    )
    cluster.run(1)
    cluster.coordinator.close()
    found = _run(tmp_path, 2, limits=[BEHIND] * 3, backend="hashmap", max_parallelism=groups[1])
    assert found == whole, _difference(found, whole)


def test_the_command_inspects_it(
    tmp_path: Path, release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(tmp_path, release)
    assert main(["checkpoints", str(tmp_path / "checkpoint"), "inspect"]) == 0
    shown = capsys.readouterr().out
    assert "tumbling-reduce" in shown
    assert "'timed map': map state" in shown


def test_what_cannot_be_converted_is_refused_by_name(tmp_path: Path, release: str) -> None:
    unpack(tmp_path, release)
    changed = {
        "tumbling sum": "tumbling reduce",
        "sliding process": "sliding sum",
        "tumbling process": "tumbling many",
        "sessions reduce": "tumbling reduce",
        "tumbling apply": "tumbling reduce timed",
    }
    graph = kept.build(2, tmp_path / "results", changed).get_job_graph(kept.JOB)
    with pytest.raises(IncompatibleProgramError) as caught:
        MiniCluster(graph, tmp_path / "checkpoint")
    told = str(caught.value)
    assert told.count("would not find its windows") == len(changed)
    for name in changed:
        assert f"operator {name!r} (kept_program.py:" in told
    assert "of Sum(1), reduced values cannot be made" in told
    assert "windows that overlap cannot be cut into panes" in told
    assert "stored without timestamps, which First looks at" in told
    assert "these are other windows" in told
    assert "stored without timestamps, which TimeEvictor looks at" in told


def _difference(found: Counter[str], wanted: Counter[str]) -> str:
    lines = [f"missing: {each}" for each in (wanted - found)]
    lines += [f"too much: {each}" for each in (found - wanted)]
    return "\n".join(["", *sorted(lines, key=lambda line: line.split("(", 1)[1])[:40]])
