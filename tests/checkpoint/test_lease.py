"""The lease of a job: who gets the next term, and what a standby sees, on directories and on S3."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.environments import wait_until

from millstream.checkpoint import lease as leases
from millstream.checkpoint.lease import LEFT, Lease, LeaseWatch, Term, Verdict, is_dead, newest_term
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.storages import open_storage
from millstream.errors import ConfigurationError, DirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.contracts.checkpoint_storage import CheckpointStorage

#: Seconds; no term of these tests is renewed within one.
LONG = 3600.0
ELSEWHERE = "another-machine/1 2 3 4"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path, fsync=False)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def held() -> Iterator[list[Lease]]:
    made: list[Lease] = []
    yield made
    for each in made:
        each.end("")


def put(storage: CheckpointStorage, term: Term) -> None:
    storage.write(leases._name(term.number), leases._encoded(term))


def term_elsewhere(number: int = 0, duration: float = 10.0) -> Term:
    return Term(number, "another:3", ELSEWHERE, duration)


def contend(storages: list[CheckpointStorage], after: int, held: list[Lease]) -> list[bool]:
    """All take the lease at once."""
    barrier = threading.Barrier(len(storages))
    contenders = [Lease(each, LONG) for each in storages]
    held += contenders

    def take(lease: Lease) -> bool:
        barrier.wait()
        return lease.take(after)

    with ThreadPoolExecutor(len(storages)) as pool:
        return list(pool.map(take, contenders))


def test_of_many_standbys_one_takes_over(tmp_path: Path, held: list[Lease]) -> None:
    for term in range(5):
        opened = [open_storage(tmp_path, fsync=False) for _ in range(8)]
        assert contend(opened, term - 1, held).count(True) == 1
        found = newest_term(LocalStorage(tmp_path))
        assert found is not None
        assert found.number == term


def test_of_several_standbys_on_s3_one_takes_over(bucket: str, held: list[Lease]) -> None:
    for term in range(2):
        opened = [open_storage(f"{bucket}/job") for _ in range(4)]
        assert contend(opened, term - 1, held).count(True) == 1


def test_a_standby_that_was_paused_gets_no_term_that_was_there(
    storage: LocalStorage, held: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terms 1 and 2 come and go between its look and its put."""
    put(storage, term_elsewhere(0))
    paused = Lease(storage, LONG)
    held.append(paused)

    def others_take_over(_: str) -> None:
        monkeypatch.setattr(leases, "crash_point", lambda _: None)
        storage.delete([leases._name(0)])
        put(storage, term_elsewhere(2))

    monkeypatch.setattr(leases, "crash_point", others_take_over)
    assert not paused.take(after=0)
    assert list(storage.list_names("lease")) == [leases._name(2)]


def test_a_driver_that_fences_takes_the_lease_whoever_has_it(
    storage: LocalStorage, held: list[Lease]
) -> None:
    put(storage, term_elsewhere(7))
    lease = Lease(storage, LONG)
    held.append(lease)
    assert lease.take()
    assert lease.take()  # after a restart within the driver
    assert list(storage.list_names("lease")) == [leases._name(8)]


def test_a_term_is_renewed_until_its_end(storage: LocalStorage) -> None:
    lease = Lease(storage, 0.05)
    assert lease.take()
    seen: set[int] = set()
    limit = threading.Event()
    threading.Timer(30, limit.set).start()
    while len(seen) < 3 and not limit.is_set():
        term = newest_term(storage)
        assert term is not None
        seen.add(term.renewals)
    assert len(seen) >= 3
    limit.set()
    lease.end("FINISHED")
    term = newest_term(storage)
    assert term is not None
    assert (term.number, term.ended) == (0, "FINISHED")


def test_a_holder_that_renews_is_never_taken_over(storage: LocalStorage, clock: Clock) -> None:
    watch = LeaseWatch(storage, 1.0, clock)
    for renewals in range(100):
        put(storage, replace(term_elsewhere(), renewals=renewals))
        assert watch.look() is Verdict.WAIT
        clock.now += 9.9
        assert watch.look() is Verdict.WAIT
    clock.now += 0.2
    assert watch.look() is Verdict.TAKE_OVER
    assert watch.newest == 0


def test_time_in_which_nothing_can_be_read_does_not_count(
    storage: LocalStorage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(storage, term_elsewhere())
    watch = LeaseWatch(storage, 1.0, clock)
    assert watch.look() is Verdict.WAIT
    with monkeypatch.context() as outage:

        def refuse(*_: object) -> bytes:
            message = "no answer"
            raise DirectoryError(message)

        outage.setattr(LocalStorage, "read", refuse)
        clock.now += 60
        assert watch.look() is Verdict.WAIT
    assert watch.look() is Verdict.WAIT
    clock.now += 9.9
    assert watch.look() is Verdict.WAIT
    clock.now += 0.2
    assert watch.look() is Verdict.TAKE_OVER


def test_time_for_which_reading_takes_does_not_count(
    storage: LocalStorage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder has renewed its lease while the standby was paused within a look."""
    put(storage, term_elsewhere())
    watch = LeaseWatch(storage, 1.0, clock)
    assert watch.look() is Verdict.WAIT
    read = LocalStorage.read

    def read_and_pause(self: LocalStorage, name: str) -> bytes:
        content = read(self, name)
        put(storage, replace(term_elsewhere(), renewals=5))
        clock.now += 60
        return content

    with monkeypatch.context() as paused:
        paused.setattr(LocalStorage, "read", read_and_pause)
        assert watch.look() is Verdict.WAIT
    assert watch.look() is Verdict.WAIT


def test_credentials_that_cannot_be_read_end_neither_renewal_nor_standby(
    storage: LocalStorage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(storage, 0.03)
    assert lease.take()
    watch = LeaseWatch(storage, 1.0, clock)
    assert watch.look() is Verdict.WAIT
    failed = threading.Event()

    def refuse(*_: object) -> bytes:
        failed.set()
        message = "the profile of the credentials cannot be read"
        raise ConfigurationError(message)

    with monkeypatch.context() as outage:
        outage.setattr(LocalStorage, "write", refuse)
        outage.setattr(LocalStorage, "read", refuse)
        assert failed.wait(30)
        assert watch.look() is Verdict.WAIT
    before = newest_term(storage)
    wait_until(lambda: newest_term(storage) != before, "the lease is renewed again", 30)
    lease.end("")


def test_the_time_of_a_slow_write_is_part_of_the_interval(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write takes as long as the interval, so renewals follow each other without a pause."""
    waits: list[float | None] = []
    lease = Lease(storage, 0.3)
    write, wait = LocalStorage.write, lease._ended.wait
    slow = threading.Event()

    def write_slowly(self: LocalStorage, name: str, content: bytes) -> None:
        slow.wait(0.1)
        write(self, name, content)

    def note(seconds: float | None = None) -> bool:
        waits.append(seconds)
        return wait(seconds)

    monkeypatch.setattr(LocalStorage, "write", write_slowly)
    monkeypatch.setattr(lease._ended, "wait", note)
    assert lease.take()
    wait_until(lambda: len(waits) > 3, "the lease is renewed three times", 30)
    lease.end("")
    assert all(each is not None and each < 0.05 for each in waits[1:])


def test_a_dead_process_of_this_machine_is_taken_over_at_once(
    storage: LocalStorage, clock: Clock
) -> None:
    program = (
        "import sys\n"
        "from millstream.checkpoint.lease import Lease\n"
        "from millstream.checkpoint.local_storage import LocalStorage\n"
        f"Lease(LocalStorage(sys.argv[1]), {LONG}).take()\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, storage.location]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        watch = LeaseWatch(storage, LONG, clock)
        assert watch.look() is Verdict.WAIT
        holder.kill()
        holder.wait()
    assert watch.look() is Verdict.TAKE_OVER


def test_processes_of_other_machines_are_not_known() -> None:
    here = leases._this_process()
    machine, space, process, start = here.split()
    assert process == str(os.getpid())
    assert not is_dead(here)
    assert is_dead(f"{machine} {space} {process} {int(start) + 1}")  # the number was given again
    assert not is_dead(f"other {space} {process} {int(start) + 1}")
    assert not is_dead(f"{machine} 1 {process} {int(start) + 1}")
    assert not is_dead("")


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [("FINISHED", Verdict.ENDED), ("CANCELED", Verdict.ENDED), (LEFT, Verdict.TAKE_OVER)],
)
def test_a_job_that_ends_while_a_standby_waits_is_not_run_again(
    ended: str, verdict: Verdict, storage: LocalStorage, clock: Clock
) -> None:
    put(storage, term_elsewhere())
    watch = LeaseWatch(storage, 1.0, clock)
    assert watch.look() is Verdict.WAIT
    put(storage, replace(term_elsewhere(), ended=ended))
    assert watch.look() is verdict
    # One that comes later was started to run it.
    assert LeaseWatch(storage, 1.0, clock).look() is Verdict.TAKE_OVER


def test_a_job_whose_checkpoints_are_deleted_has_ended(storage: LocalStorage, clock: Clock) -> None:
    put(storage, term_elsewhere())
    watch = LeaseWatch(storage, 1.0, clock)
    assert watch.look() is Verdict.WAIT
    storage.delete([leases._name(0)])
    assert watch.look() is Verdict.WAIT
    assert watch.is_gone
    clock.now += 9.9
    assert watch.look() is Verdict.WAIT
    clock.now += 0.2
    assert watch.look() is Verdict.ENDED


def test_a_directory_that_comes_back_has_its_job(storage: LocalStorage, clock: Clock) -> None:
    """It was not mounted for a while, or its holder has written the term again."""
    put(storage, term_elsewhere(3))
    watch = LeaseWatch(storage, 1.0, clock)
    assert watch.look() is Verdict.WAIT
    for renewals in range(1, 4):
        storage.delete([leases._name(3)])
        assert watch.look() is Verdict.WAIT
        clock.now += 9.9
        assert watch.look() is Verdict.WAIT
        put(storage, replace(term_elsewhere(3), renewals=renewals))
        assert watch.look() is Verdict.WAIT
        assert not watch.is_gone
    clock.now += 10
    assert watch.look() is Verdict.TAKE_OVER
    assert watch.newest == 3


def test_without_any_term_a_standby_waits_for_a_driver_that_starts(
    storage: LocalStorage, clock: Clock
) -> None:
    """A driver of an older release has no lease, but it publishes checkpoints."""
    watch = LeaseWatch(storage, 1.0, clock)
    assert watch.look() is Verdict.WAIT
    clock.now += 0.9
    ManifestLog(storage).open_generation()
    assert watch.look() is Verdict.WAIT
    clock.now += 0.9
    assert watch.look() is Verdict.WAIT
    clock.now += 0.2
    assert watch.look() is Verdict.TAKE_OVER
    assert watch.newest == -1
