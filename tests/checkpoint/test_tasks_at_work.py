"""The coordinator of an engine whose tasks go on while a checkpoint is completed."""

from __future__ import annotations

import pickle
import random
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from millstream.checkpoint import Coordinator, LocalStorage, ManifestLog, OperatorAck, TaskAck
from millstream.checkpoint.commit import CommitRetry
from millstream.checkpoint.model import SplitState, digest_of
from millstream.checkpoint.publish import EpochMetadata, Unconfirmed, with_earlier
from millstream.configuration.options import CheckpointingMode
from millstream.contracts.metrics import distribution, gauge, meter
from millstream.contracts.sink import Committer
from millstream.errors import CheckpointError, SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.contracts.key_value_store import StateHandle
    from millstream.contracts.metrics import MetricValue
    from millstream.contracts.sink import CommitRequest, Committable

TASK = {(0, 0)}
NEVER_AGAIN = CommitRetry(delays=())


class Target(Committer):
    """Remembers what was committed, by epoch, and whose orphans were dropped."""

    def __init__(self) -> None:
        self.committed: list[tuple[int, object]] = []
        self.aborted: list[int] = []
        self.log: ManifestLog | None = None
        #: The newest manifest at each commit.
        self.published: list[int] = []
        self.broken = False

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        latest = None if self.log is None else self.log.latest()
        self.published.append(-1 if latest is None else latest.epoch)
        if self.broken:
            message = "the target is down"
            raise SinkError(message)
        self.committed += [(request.epoch, request.committable) for request in requests]

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        self.aborted.append(generation)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "checkpoint", fsync=False)


def begun(storage: LocalStorage, target: Target, **settings: Any) -> Coordinator:
    found = Coordinator(
        storage, "job", {"out": target}, retry=NEVER_AGAIN, tasks_at_work=True, **settings
    )
    target.log = ManifestLog(storage)
    found.open()
    found.recover()
    return found


def metadata(epoch: int) -> EpochMetadata:
    return EpochMetadata(epoch, 0, {"p": epoch}, {0: 1}, 8)


def ack_of(epoch: int, *committables: object, state: StateHandle | None = None) -> TaskAck:
    pickled = [pickle.dumps(each) for each in committables]
    operator = OperatorAck("out", 0, 0, state=state, committables=pickled)
    return TaskAck(epoch, 0, 0, f"attempt-{epoch}", [operator])


def test_checkpoints_in_flight_end_in_order(storage: LocalStorage) -> None:
    target = Target()
    driver = begun(storage, target)
    with pytest.raises(CheckpointError, match="checkpoint 1 is to begin, but the next one is 0"):
        driver.begin_epoch(metadata(1))
    for epoch in range(3):
        driver.begin_epoch(metadata(epoch))
    with pytest.raises(CheckpointError, match="under way, in order: 0, 1, 2"):
        driver.complete_epoch(metadata(1), [ack_of(1, "b")], TASK)
    for epoch, item in enumerate("abc"):
        driver.complete_epoch(metadata(epoch), [ack_of(epoch, item)], TASK)
    assert target.committed == [(0, "a"), (1, "b"), (2, "c")]
    with pytest.raises(CheckpointError, match="under way, in order: none"):
        driver.complete_epoch(metadata(3), [ack_of(3)], TASK)
    driver.close()


def test_orphans_of_this_run_are_dropped_at_recovery_only(storage: LocalStorage) -> None:
    """Those of older runs also later: a slot that was stopped may wake up."""
    target = Target()
    begun(storage, target).close()
    assert target.aborted == [1]
    target.aborted.clear()
    driver = begun(storage, target, sweep_interval=3)
    assert target.aborted == [2]
    for epoch in range(8):
        driver.begin_epoch(metadata(epoch))
        driver.complete_epoch(metadata(epoch), [ack_of(epoch, epoch)], TASK)
    assert target.aborted == [2, 1, 1]
    driver.close()


def test_what_a_failed_checkpoint_owes_comes_with_the_next(storage: LocalStorage) -> None:
    target = Target()
    driver = begun(storage, target)
    task = Unconfirmed()
    for epoch in range(4):
        driver.begin_epoch(metadata(epoch))
    acks = [task.carrying(ack_of(epoch, f"output of {epoch}")) for epoch in range(4)]
    assert driver.fail_epoch(0) == 1
    assert driver.fail_epoch(1) == 2
    with pytest.raises(CheckpointError, match="checkpoint 1 is aborted, but it is not in progress"):
        driver.fail_epoch(1)
    driver.complete_epoch(metadata(2), [acks[2]], TASK)
    assert target.committed == [(2, f"output of {epoch}") for epoch in range(3)]
    # The task was not told that 2 is published when it acknowledged 3.
    assert [part.epoch for part in acks[3].earlier] == [0, 1, 2]
    driver.complete_epoch(metadata(3), [acks[3]], TASK)
    assert target.committed[3:] == [(3, "output of 3")]
    driver.begin_epoch(metadata(4))
    assert driver.fail_epoch(4) == 1  # in a row
    driver.close()
    # Numbers go on behind the last that is published, and those that failed are not missed.
    again = begun(storage, target)
    again.begin_epoch(metadata(4))
    again.complete_epoch(metadata(4), [ack_of(4, "again")], TASK)
    assert [manifest.epoch for manifest in ManifestLog(storage).manifests()] == [3, 4]
    again.close()


def test_epochs_that_end_their_tasks_cannot_fail_alone(storage: LocalStorage) -> None:
    driver = Coordinator(storage, "job", {})
    driver.open()
    driver.recover()
    driver.begin_epoch(metadata(0))
    with pytest.raises(CheckpointError, match="its tasks end with it"):
        driver.fail_epoch(0)
    driver.close()


def test_metrics_and_splits_of_two_epochs_are_those_of_one() -> None:
    earlier: dict[str, MetricValue] = {
        "count": 3,
        "level": gauge(1),
        "rate": meter(5, 60),
        "sizes": distribution(2, 10, 4, 6),
        "gone": 7,
        "other": 1,
    }
    later: dict[str, MetricValue] = {
        "count": 4,
        "level": gauge(2),
        "rate": meter(1, 60),
        "sizes": distribution(1, 9, 9, 9),
        "other": gauge(3),
    }
    first = TaskAck(0, 0, 0, "a", [OperatorAck("u", 0, 10, metrics=earlier, key_types=["int"])])
    first.splits = [SplitState("s", "ended", 9, finished=True, watermark=5, records=9)]
    first.splits.append(SplitState("s", "open", 4, finished=False, watermark=5, records=4))
    second = TaskAck(1, 0, 0, "b", [OperatorAck("u", 0, 20, metrics=later, key_types=["str"])])
    second.splits = [SplitState("s", "open", 6, finished=False, watermark=7, records=2)]
    task = Unconfirmed()
    task.carrying(first)
    found = with_earlier(task.carrying(second), published=-1)
    (operator,) = found.operators
    assert operator.metrics == {
        "count": 7,
        "level": gauge(2),
        "rate": meter(6, 60),
        "sizes": distribution(3, 19, 4, 9),
        "gone": 7,
        "other": gauge(3),
    }
    assert (found.attempt, operator.watermark, operator.key_types) == ("b", 20, ["int", "str"])
    assert [(s.split_id, s.finished, s.position, s.records) for s in found.splits] == [
        ("ended", True, 9, 9),
        ("open", False, 6, 6),
    ]


@pytest.mark.parametrize("told_before", [True, False])
def test_acknowledgements_do_not_grow_with_the_failures_in_a_row(
    storage: LocalStorage, *, told_before: bool
) -> None:
    target = Target()
    driver = begun(storage, target)
    task = Unconfirmed()
    for epoch in range(50):
        driver.begin_epoch(metadata(epoch))
        driver.fail_epoch(epoch)
        if told_before:
            task.abandon(epoch)
        ack = task.carrying(ack_of(epoch, epoch))
        task.abandon(epoch)
        assert len(ack.earlier) <= 1
    driver.begin_epoch(metadata(50))
    driver.complete_epoch(metadata(50), [task.carrying(ack_of(50, 50))], TASK)
    assert [item for _, item in target.committed] == list(range(51))
    task.confirm(50)
    assert task.carrying(ack_of(51)).earlier == []
    assert task._abandoned == set()
    driver.close()


@pytest.mark.parametrize("seed", range(20))
def test_output_is_committed_once_and_in_order_whatever_fails(
    storage: LocalStorage, seed: int
) -> None:
    """Checkpoints in flight, failures and late confirmations at random."""
    numbers = random.Random(seed)
    target = Target()
    driver = begun(storage, target)
    task = Unconfirmed()
    under_way: deque[tuple[int, TaskAck]] = deque()
    news: deque[int] = deque()
    abandoned: deque[int] = deque()
    for epoch in range(40):
        driver.begin_epoch(metadata(epoch))
        under_way.append((epoch, task.carrying(ack_of(epoch, epoch))))
        while under_way and numbers.random() < 0.6:
            if numbers.random() < 0.4:
                failed = numbers.choice(under_way)
                driver.fail_epoch(failed[0])
                under_way.remove(failed)
                abandoned.append(failed[0])
                continue
            done, ack = under_way.popleft()
            driver.complete_epoch(metadata(done), [ack], TASK)
            news.append(done)
        while news and numbers.random() < 0.5:
            task.confirm(news.popleft())
        while abandoned and numbers.random() < 0.5:
            task.abandon(abandoned.popleft())
    driver.begin_epoch(metadata(40))
    last = task.carrying(ack_of(40, 40))
    for epoch, _ in under_way:
        driver.fail_epoch(epoch)
    driver.complete_epoch(metadata(40), [last], TASK)
    assert [item for _, item in target.committed] == list(range(41)), f"seed {seed}"
    driver.close()


#: Of the files that ``upload`` writes.
DIGEST = digest_of([b"x"])[1]


def handle(*names: str) -> StateHandle:
    return {
        "backend": "rocksdb",
        "id": names[-1],
        "key_groups": (0, 8),
        "files": [
            {"local": name, "remote": f"state/u/{name}", "size": 1, "digest": DIGEST}
            for name in names
        ],
    }


def test_files_of_checkpoints_in_flight_are_not_taken_for_garbage(
    storage: LocalStorage, tmp_path: Path
) -> None:
    """Also those of an upload that takes longer than several checkpoints and sweeps."""
    driver = begun(storage, Target(), sweep_interval=1)
    for epoch in range(4):
        driver.begin_epoch(metadata(epoch))
    local = tmp_path / "x"
    local.write_bytes(b"x")
    storage.upload(local, "state/u/for 3")
    storage.upload(local, "state/u/garbage")
    storage.write("temporary/upload under way", b"")
    for epoch in range(3):
        driver.complete_epoch(metadata(epoch), [ack_of(epoch)], TASK)
        assert storage.exists("temporary/upload under way")
    driver.begin_epoch(metadata(4))
    driver.complete_epoch(metadata(3), [ack_of(3, state=handle("for 3"))], TASK)
    assert storage.exists("state/u/garbage")
    # The first that was begun behind the sweep: every task has acknowledged it since.
    driver.complete_epoch(metadata(4), [ack_of(4, state=handle("for 3"))], TASK)
    assert [*storage.list_names("state"), *storage.list_names("temporary")] == ["state/u/for 3"]
    driver.close()


def test_files_of_a_failed_checkpoint_are_kept_for_the_next(
    storage: LocalStorage, tmp_path: Path
) -> None:
    driver = begun(storage, Target(), sweep_interval=1)
    local = tmp_path / "x"
    local.write_bytes(b"x")
    driver.begin_epoch(metadata(0))
    driver.begin_epoch(metadata(1))
    storage.upload(local, "state/u/of 1")
    driver.complete_epoch(metadata(0), [ack_of(0)], TASK)
    driver.fail_epoch(1)
    driver.begin_epoch(metadata(2))
    driver.complete_epoch(metadata(2), [ack_of(2, state=handle("of 1"))], TASK)
    assert storage.exists("state/u/of 1")
    driver.close()


def test_files_of_failed_checkpoints_go_the_sooner_the_more_there_are(
    storage: LocalStorage,
) -> None:
    driver = begun(storage, Target(), sweep_interval=4)
    for epoch in range(8):
        driver.begin_epoch(metadata(epoch))
        storage.write(f"state/in-flight/{epoch}", b"x")
        if epoch in {3, 7}:
            driver.complete_epoch(metadata(epoch), [ack_of(epoch)], TASK)
        else:
            driver.fail_epoch(epoch)
    assert [*storage.list_names("state")] == [f"state/in-flight/{epoch}" for epoch in (4, 5, 6, 7)]
    driver.close()


def test_at_least_once_publishes_first_as_flink_does(storage: LocalStorage) -> None:
    target = Target()
    driver = begun(storage, target, mode=CheckpointingMode.AT_LEAST_ONCE)
    driver.begin_epoch(metadata(0))
    target.broken = True
    with pytest.raises(SinkError, match="the next run of the job commits them"):
        driver.complete_epoch(metadata(0), [ack_of(0, "a")], TASK)
    assert target.published == [0]
    driver.close()
    target.broken = False
    begun(storage, target, mode=CheckpointingMode.AT_LEAST_ONCE).close()
    assert target.committed == [(0, "a")]


def test_none_commits_once_and_keeps_the_position_alone(storage: LocalStorage) -> None:
    target = Target()
    driver = begun(storage, target, mode=CheckpointingMode.NONE)
    driver.begin_epoch(metadata(0))
    driver.complete_epoch(metadata(0), [ack_of(0, "a", state=handle("f"))], TASK)
    assert driver.last is not None
    assert driver.last.operators["out"][0].state == handle("f")
    driver.begin_epoch(metadata(1))
    target.broken = True
    with pytest.raises(SinkError, match="does not write the output again"):
        driver.complete_epoch(metadata(1), [ack_of(1, "b")], TASK)
    driver.close()
    target.broken = False
    again = begun(storage, target, mode=CheckpointingMode.NONE)
    assert again.last is not None
    assert (again.last.epoch, again.last.offsets, again.last.operators) == (1, {"p": 1}, {})
    assert target.committed == [(0, "a")]
    assert target.published == [0, 1]
    again.close()
