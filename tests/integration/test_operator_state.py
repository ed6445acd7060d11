"""Jobs with operator state: rescaled from their checkpoints, and killed; states of both sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment, event_time
from tests.matrix.test_other_modes import dying_at

from millstream.checkpoint.commit import state_names
from millstream.checkpoint.inspect import inspect_checkpoint, verify_checkpoints
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.common import Types
from millstream.contracts.batch import Batch
from millstream.contracts.operator import Checkpoint, Operator, OperatorSnapshot, RestoreContext
from millstream.execution.monitor import JobMonitor
from millstream.state.reader import open_state
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.metrics.progress import Progress

pytestmark = pytest.mark.both_engines

RECORDS = 240
#: What each subtask was given of its union, by (epoch, subtask, parallelism).
given: dict[tuple[int, int, int], list[Any]] = {}


class Keeper(Operator):
    """Keeps all records in a list until the end of the input, and counts in the other kinds."""

    def restore(self, restored: RestoreContext) -> None:
        states = restored.operator_states
        self.kept = states.list_state("kept", Types.PICKLED_BYTE_ARRAY())
        self.counts = states.union_list_state("counts")
        self.rules = states.broadcast_state("rules", Types.STRING(), Types.LONG())
        place = (self.context.subtask, self.context.parallelism)
        given[restored.epoch, *place] = self.counts.get()
        epochs = self.rules.get("epochs") or 0
        assert epochs == restored.epoch, "every subtask has the same, whatever the parallelism"
        if not self.rules.contains("large"):
            self.rules.put("large", "r" * 10_000)
        self.count = 0

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.count += len(batch)
        for value in batch.values:
            self.kept.add(value)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        self.rules.put("epochs", checkpoint.epoch + 1)
        self.counts.update([(self.context.subtask, self.context.parallelism, self.count)])
        return OperatorSnapshot()

    def end_input(self) -> None:
        self.output.emit(Batch(self.context.output_type, values=self.kept.get()))
        self.kept.clear()


@dataclass
class KeeperFactory:
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        return Keeper()


def cluster(directory: Path, parallelism: int, length: int) -> MiniCluster:
    events = [(f"{number:05}" + "x" * length, number, number) for number in range(RECORDS)]
    env = environment(parallelism)
    records = env.from_source(SplitsSource([events[::2], events[1::2]]), event_time(0), "records")
    spread = records.rebalance()
    kept = spread._operator("Keeper", KeeperFactory(), Types.PICKLED_BYTE_ARRAY(), {}).uid("keeper")
    collect(kept, directory)
    graph = env.get_job_graph("operator state")
    return MiniCluster(graph, directory / "checkpoint", limits=repeat(20), seed=parallelism)


#: A kept record of this length makes files of some of the lists.
LENGTHS = [1, 700]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_job_that_is_rescaled_loses_and_doubles_nothing(tmp_path: Path, length: int) -> None:
    for parallelism in (2, 3, 1, 4):
        run = cluster(tmp_path, parallelism, length)
        run.run(max_epochs=2)
    cluster(tmp_path, 2, length).run()
    numbers = Counter(value[1] for value in collected(tmp_path))
    assert numbers == Counter(range(RECORDS))


def test_a_union_is_given_to_all_when_the_job_is_restored_and_only_then(tmp_path: Path) -> None:
    given.clear()
    for parallelism in (2, 2, 3):
        cluster(tmp_path, parallelism, 1).run(max_epochs=2)
    restored = {
        (epoch, subtask): [(who, of) for who, of, _ in counts]
        for (epoch, subtask, _), counts in given.items()
    }
    all_of_two = [(0, 2), (1, 2)]
    expected = {
        (0, 0): [],
        (0, 1): [],
        # Within a run a subtask goes on.
        (1, 0): [(0, 2)],
        (1, 1): [(1, 2)],
        # Another run, of the same parallelism and of another one.
        (2, 0): all_of_two,
        (2, 1): all_of_two,
        (3, 0): [(0, 2)],
        (3, 1): [(1, 2)],
        (4, 0): all_of_two,
        (4, 1): all_of_two,
        (4, 2): all_of_two,
        (5, 0): [(0, 3)],
        (5, 1): [(1, 3)],
        (5, 2): [(2, 3)],
    }
    if MiniCluster.pipelined:  # restored once in a run of two checkpoints
        expected = {place: counts for place, counts in expected.items() if place[0] % 2 == 0}
    assert restored == expected


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "point",
    [
        "state.upload.before",
        "state.upload.after",
        "task.ack.before",
        "epoch.acks.after",
        "manifest.publish.after",
        "cleanup.before",
    ],
)
def test_a_job_that_is_killed_and_rescaled(tmp_path: Path, point: str) -> None:
    for parallelism in (2, 1, 3):
        run = cluster(tmp_path, parallelism, 700)
        run.run_epoch()
        with dying_at(point):
            run.run_epoch()
        run.close_instances()
    last = cluster(tmp_path, 2, 700)
    last.run()
    assert Counter(value[1] for value in collected(tmp_path)) == Counter(range(RECORDS))


def test_files_are_named_listed_verified_and_cleaned_up(tmp_path: Path) -> None:
    run = cluster(tmp_path, 2, 700)
    run.run(max_epochs=4)
    storage = run.storage
    manifests = list(ManifestLog(storage).manifests())
    named = set().union(*map(state_names, manifests))
    assert sorted(storage.list_names("state/keeper")) == sorted(named)
    rules = [ack.operator_states["rules"] for ack in manifests[-1].operators["keeper"]]
    assert all(handle.file is not None for handle in rules)
    details = inspect_checkpoint(storage)
    keeper = next(each for each in details.operators if each.uid == "keeper")
    assert keeper.state_files == 4
    assert keeper.keeps == [
        "'counts': operator union list state, 2 elements",
        "'kept': operator list state, 80 elements",
        "'rules': broadcast state of String -> Long, 2 entries",
    ]
    with open_state(storage, manifests[-1], "keeper") as state:
        kinds = {each.section.name: (each.section.kind, each.entries) for each in state.sections()}
        read: dict[str, list[Any]] = {name: list(state.entries(name)) for name in kinds}
    assert kinds == {
        "counts": ("union list state", 2),
        "kept": ("list state", 80),
        "rules": ("broadcast state", 2),
    }
    assert [entry.namespace for entry in read["counts"]] == [0, 1]
    assert sorted(entry.value[1] for entry in read["kept"]) == list(range(80))
    assert {entry.key: entry.value for entry in read["rules"]} == {
        "epochs": 4,
        "large": "r" * 10_000,
    }
    verified = verify_checkpoints(storage)
    assert verified.ok
    assert verified.files == len(named)
    path = storage.location + "/" + min(named)
    with open(path, "ab") as file:  # noqa: PTH123 - a name in a storage
        file.write(b"!")
    assert not verify_checkpoints(storage).ok


def test_the_figures_of_an_epoch_count_the_files_that_it_wrote(tmp_path: Path) -> None:
    class Noting:
        bytes: ClassVar[list[int]] = []

        def update(self, figures: Progress) -> None:
            self.bytes.append(figures.checkpoint_bytes)

    run = cluster(tmp_path, 2, 700)
    monitor = JobMonitor(run._graph, {}, cast("Any", Noting()))
    expected, seen = [], set()
    for _ in range(3):
        run.run_epoch()
        manifest = run.coordinator.last
        assert manifest is not None
        monitor.epoch_done(manifest, [], 1.0)
        files = {f["remote"]: f["size"] for a in manifest.operators["keeper"] for f in a.files()}
        expected.append(sum(size for name, size in files.items() if name not in seen))
        seen |= set(files)
    run.close_instances()
    assert Noting.bytes == expected
    assert min(expected) > 20_000
