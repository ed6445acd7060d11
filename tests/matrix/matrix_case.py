"""One case of the crash matrix: a sink, a crash point, a fault, a seed; run and judged.

The driver processes come from the fork server of ``tests/forked.py``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tests.matrix.matrix_driver import FENCED, DriverPlan, drive, expected
from tests.matrix.matrix_targets import KINDS, make_target
from tests.matrix.slots_driver import drive_slots
from tests.support.faults import OF_SLOTS, ArmedFault, Fault, Rendezvous

from millstream.crash_points import CRASH_POINTS, points_of
from millstream.testing.crash import group_lives

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import ForkServerProcess

    from tests.matrix.matrix_targets import MatrixTarget, Reader, Result
    from tests.support.unprotected import Protection

__all__ = ["Case", "CaseFailedError", "all_cases", "all_slot_cases", "run_case", "two_regions"]

#: Seconds for one driver, and for a sign of one.
DEADLINE = float(os.environ.get("MILLSTREAM_MATRIX_DEADLINE", "90"))
#: Seconds between two looks of the reader.
PAUSE = 0.01
#: Where a driver is killed so that the next one has something to recover: orphans, and an epoch
#: that is published and not committed.
WITH_ORPHANS = "task.ack.before:8"
UNCOMMITTED = "manifest.publish.after:2"
#: The same, with records on their way.
WITH_ORPHANS_UNDERWAY = "sink.prepare.before:7"
#: Seconds after which the first goes on anyway: it may hold a lock that the second waits for.
HELD_UP = 3.0
#: Seconds after which rows count as lost where a protection is missing, so that some will be.
LOST = 2.0
#: No local copy is there yet, or one that no checkpoint has.
NOTHING_TO_DAMAGE = (
    "splits.log.before",
    "splits.log.after",
    "state.flush.after",
    "state.upload.before",
)
#: What happens at the point while records travel slowly: the step fails, or something worse.
WHILE_SLOW = (
    Fault.SLOW_PRODUCE,
    Fault.KILL_WORKER,
    Fault.CONNECTION_CUT,
    Fault.KILL_DRIVER,
    Fault.STOPPED_DRIVER,
)
#: Not passed while tasks live on: there is no end of reading.
OF_EPOCHS = ("source.read.after",)
#: Passed when no slot is there.
WITHOUT_SLOTS = ("log.open.", "recover.", "splits.log.", "kafka.abort.", "sink.abort.")
#: Passed once in a run; all others are as often as this at least, those of tasks more often.
ONCE = ("epoch.start.", "splits.log.", "sink.abort.")
OFTEN = 2
OF_TASKS_OFTEN = 7
#: Sinks that two pipelines of a job can write to; the write-ahead sink of the matrix is for one.
OF_TWO = (
    "file",
    "kafka",
    "postgres-two-phase",
    "postgres-commit-table",
    "postgres-upsert",
    "sqlite",
)
#: Those that happen to slots; local copies are only damaged where epochs are run.
ON_SLOTS = tuple(fault for fault in Fault if fault is not Fault.LOCAL_COPY_DAMAGED)
#: Where a second driver stops until the first has gone on; "" does not stop.
SECOND_STOPS = ("log.open.after:1", "recover.abort.after:1", "epoch.end.before:1", "")


#: Several threads run cases, and ``multiprocessing`` looks at all processes when it starts one:
#: of two looks at a process that has just ended the second takes its exit code for 255.
_PROCESSES = threading.Lock()


class CaseFailedError(AssertionError):
    """Results were lost, repeated, wrong or out of order, or the job did not come to its end."""


def _fail(message: str) -> NoReturn:
    raise CaseFailedError(message)


@dataclass(frozen=True, slots=True)
class Case:
    """A cell of the matrix, with a seed."""

    kind: str
    point: str
    fault: Fault
    seed: int
    #: On tasks that live on.
    on_slots: bool = False
    #: Pipelines that are not connected; of tasks that live on.
    regions: int = 1

    def __str__(self) -> str:
        """For the names of tests."""
        end = "-slots" if self.on_slots else ""
        end += f"-{self.regions}" if self.regions > 1 else ""
        return f"{self.kind}-{self.point}-{self.fault.name.lower()}-{self.seed}{end}"

    @staticmethod
    def parse(text: str) -> Case:
        """The inverse of ``str``; raises ValueError."""
        faults = "|".join(fault.name.lower() for fault in Fault)
        kinds = "|".join(map(re.escape, KINDS))
        match = re.fullmatch(rf"({kinds})-(.+)-({faults})-(\d+)(?:(-slots)(-2)?)?", text)
        if match is None:
            raise ValueError(text)
        fault = Fault[match[3].upper()]
        regions = 2 if match[6] else 1
        return Case(match[1], match[2], fault, int(match[4]), bool(match[5]), regions)


def all_cases(seed: int) -> list[Case]:
    """Every combination that exists, for one seed."""
    return [
        Case(kind, point, fault, seed)
        for kind, target in KINDS.items()
        for point in points_of("driver", "task", *target.parts)
        for fault in Fault
        if fault not in OF_SLOTS and _is_case(target, point, fault)
    ]


def all_slot_cases(seed: int) -> list[Case]:
    """The same on slots."""
    parts = ("driver", "task", "pipelined driver", "pipelined task", "unaligned task")
    return [
        Case(kind, point, fault, seed, on_slots=True)
        for kind, target in KINDS.items()
        for point in points_of(*parts, *target.parts)
        for fault in ON_SLOTS
        if point not in OF_EPOCHS and _is_case(target, point, fault) and _meets(point, fault)
    ]


def two_regions(seed: int) -> list[Case]:
    """Those of them where two pipelines fail and are restarted apart, into the same sink."""
    return [replace(case, regions=2) for case in all_slot_cases(seed) if case.kind in OF_TWO]


def _meets(point: str, fault: Fault) -> bool:
    """Whether there are slots to meet a fault of slots."""
    if fault is Fault.LINK_CUT and point == "epoch.start.before":
        return False  # they are there, and not connected with each other
    met = fault is Fault.KILL_WORKER or fault in OF_SLOTS
    return not (met and point.startswith(WITHOUT_SLOTS))


def _is_case(target: type[MatrixTarget], point: str, fault: Fault) -> bool:
    if point in target.never:
        return False
    if fault is Fault.LOCAL_COPY_DAMAGED:
        return _damages(point)
    if fault is Fault.DISK_FULL:
        return point in points_of("driver", "task")  # the sink's steps tell nothing more of it
    if fault is Fault.SLOW_PRODUCE:
        return target.slows
    return _exists(target, point, fault)


def _damages(point: str) -> bool:
    """Whether local copies can be damaged there, and the sink's steps tell nothing more of it."""
    return point not in NOTHING_TO_DAMAGE and point in points_of("driver", "task")


def _exists(target: type[MatrixTarget], point: str, fault: Fault) -> bool:
    if point.startswith("splits.log."):
        return fault is not Fault.KILL_WORKER  # no task has run yet
    if fault is Fault.KILL_DRIVER_ALONE:
        of_driver = point in points_of("driver", "pipelined driver")
        return not of_driver and not _in_recovery(point)
    if target.server_error is None and fault is Fault.CONNECTION_CUT:
        return point.endswith(".before")
    if fault is Fault.STOPPED_DRIVER:
        return point not in target.locked
    if fault is Fault.APPLIED_BUT_FAILED:
        return point.endswith(".after") or target.server_error is not None
    return True


def _in_recovery(point: str) -> bool:
    return point.startswith(("recover.", "log.open.", "kafka.abort."))


@dataclass
class _Drivers:
    """Starts drivers of one case, one directory each."""

    plan: DriverPlan
    #: What a driver does.
    run: Callable[[DriverPlan], None] = drive
    processes: list[ForkServerProcess] = field(default_factory=list)

    def start(self, point: str = "", fault: Fault = Fault.KILL_DRIVER, **more: object) -> _Driver:
        """Start one."""
        number = len(self.processes)
        directory = self.plan.directory / f"driver-{number}"
        directory.mkdir()
        plan = replace(
            self.plan,
            directory=directory,
            point=point,
            fault=fault,
            seed=10 * self.plan.seed + number,
            **more,  # type: ignore[arg-type]
        )
        process = multiprocessing.get_context("forkserver").Process(target=self.run, args=(plan,))
        with _PROCESSES:
            process.start()
        self.processes.append(process)
        return _Driver(process, plan)

    def kill(self) -> None:
        """Kill what still runs."""
        for process in self.processes:
            _kill_group(process.pid or 0)
            _exit_code(process, DEADLINE)


@dataclass
class _Driver:
    process: ForkServerProcess
    plan: DriverPlan

    @property
    def signs(self) -> Rendezvous:
        return Rendezvous(self.plan.directory)

    @property
    def output(self) -> str:
        path = self.plan.directory / "output.txt"
        return path.read_text() if path.exists() else ""

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        code = _exit_code(self.process, DEADLINE)
        if code is None:
            self._show_stacks()
            _fail(f"a driver did not end in {DEADLINE} s:\n{self.output}")
        return code

    def _show_stacks(self) -> None:
        """Let every process of the group write where it stands."""
        os.killpg(self.process.pid or 0, signal.SIGUSR2)
        time.sleep(1)  # it has hung for long; this is for the message only

    def wait_until_reached(self, seconds: float = DEADLINE) -> bool:
        """Wait for its fault; False if it ended without, or the time is over."""
        limit = time.monotonic() + seconds
        while not self.signs.given(ArmedFault.REACHED):
            if _exit_code(self.process, 0) is not None or time.monotonic() > limit:
                return self.signs.given(ArmedFault.REACHED)
            time.sleep(PAUSE / 2)
        return True


class Watcher(threading.Thread):
    """Reads all the time, and judges what it sees."""

    def __init__(self, target: MatrixTarget) -> None:
        super().__init__(daemon=True)
        self.wrong = ""
        self.looks = 0
        self._target = target
        self._wanted = Counter(expected())
        self._over = threading.Event()

    def run(self) -> None:
        """Look until told to stop, and once more then."""
        try:
            reader = self._target.reader()
            try:
                while not self.wrong and not self._over.wait(PAUSE):
                    self._look(reader)
                self._look(reader)
            finally:
                reader.close()
        except Exception as error:  # noqa: BLE001 - judged by whoever waits
            self.wrong = f"the reader failed: {error!r}"

    def _look(self, reader: Reader) -> None:
        for rows in reader.look():
            self.wrong = self.wrong or judge(rows, self._wanted)
        self.looks += 1

    def stop(self) -> None:
        """Stop looking."""
        self._over.set()
        self.join()


def judge(rows: list[Result], wanted: Counter[Result]) -> str:
    """What is wrong with rows in the order of reading: each once, per key 1, 2, 3, ..."""
    surplus = Counter(rows) - wanted
    if surplus:
        return f"wrong or twice: {list(surplus.items())[:3]}"
    reached: Counter[str] = Counter()
    for key, number, _ in rows:
        reached[key] += 1
        if number != reached[key]:
            return f"{key} number {number} was read as its number {reached[key]}"
    return ""


def run_case(
    case: Case,
    address: str,
    directory: Path,
    passings: dict[str, int],
    without: tuple[Protection, ...] = (),
) -> None:
    """Run a case.

    Args:
        case: what happens.
        address: of a new target.
        directory: for this case.
        passings: how often each point is passed in a run that nothing disturbs (``count``).
        without: protections that are taken away.

    Raises:
        CaseFailedError: the sink, or the job, did not do what it promises.
    """
    chance = random.Random(str(case))
    target = make_target(case.kind, address)
    target.create()
    moment = directory / "underway" if case.fault is Fault.SLOW_PRODUCE else None
    with target.slowed(moment) if moment else contextlib.nullcontext(address) as reached:
        plan = DriverPlan(
            case.kind,
            reached,
            directory / "checkpoints",
            directory,
            case.seed,
            without=without,
            regions=case.regions,
            moment=moment,
        )
        if case.fault is Fault.LOCAL_COPY_DAMAGED:
            plan = replace(plan, state_backend=chance.choice(("hashmap", "rocksdb")))
        watcher = Watcher(target)
        watcher.start()
        try:
            drivers = _Drivers(plan, drive_slots if case.on_slots else drive)
            _run_drivers(case, drivers, chance, passings)
        finally:
            watcher.stop()
    _judge_end(target, watcher, LOST if without else DEADLINE)


def _run_drivers(
    case: Case, drivers: _Drivers, chance: random.Random, passings: dict[str, int]
) -> None:
    """Disturb the job, and run it to its end."""
    try:
        _disturb(case, drivers, chance, passings)
        for _ in range(3):  # a driver that failed is started again by whoever runs the job
            last = drivers.start()
            code = last.wait()
            if code == 0:
                break
        if code:
            _fail(f"the job does not come to its end ({code}):\n{last.output}")
    finally:
        drivers.kill()


def _judge_end(target: MatrixTarget, watcher: Watcher, patience: float) -> None:
    if watcher.wrong:
        _fail(f"the reader beside: {watcher.wrong}")
    if not watcher.looks:
        _fail("the reader beside never came to read")
    reader = target.reader()
    try:
        wanted = expected()
        limit = time.monotonic() + patience  # for readers that are sent what there is bit by bit
        while any(len(rows) < len(wanted) for rows in reader.look()) and time.monotonic() < limit:
            pass
        for rows in reader.look():
            wrong = judge(rows, Counter(wanted))
            if wrong:
                _fail(f"the reader after: {wrong}")
            if len(rows) != len(wanted):
                _fail(f"{len(wanted) - len(rows)} of {len(wanted)} rows are lost")
    finally:
        reader.close()
    left = target.leftovers()
    if left:
        _fail(f"left over: {left}")


def _disturb(
    case: Case, drivers: _Drivers, chance: random.Random, passings: dict[str, int]
) -> None:
    driver = _reach(case, drivers, chance, passings)
    fault = driver.plan.fault
    if fault is Fault.KILL_DRIVER:
        driver.wait()
    elif fault is Fault.KILL_DRIVER_ALONE:
        _let_worker_go_on(driver, drivers)
    elif fault is Fault.SECOND_DRIVER:
        _start_second(case, driver, drivers, chance)
    elif fault is Fault.STOPPED_DRIVER:
        _take_over(driver, drivers)
    elif code := driver.wait():
        _fail(f"the driver should have survived, it ended with {code}:\n{driver.output}")
    elif fault is Fault.LOCAL_COPY_DAMAGED and not driver.signs.given(ArmedFault.DAMAGED):
        _fail(f"{case.point} was not reached with a local copy to damage:\n{driver.output}")


def _reach(
    case: Case, drivers: _Drivers, chance: random.Random, passings: dict[str, int]
) -> _Driver:
    """A driver that has met its fault."""
    point = f"{case.point}:{_passing(case, chance, passings)}"
    fault, with_orphans = case.fault, WITH_ORPHANS
    if fault is Fault.SLOW_PRODUCE:
        meanwhile = [each for each in WHILE_SLOW if _exists(KINDS[case.kind], case.point, each)]
        fault, with_orphans = chance.choice(meanwhile), WITH_ORPHANS_UNDERWAY
    if _in_recovery(case.point):
        point = f"{case.point}:1"
        orphans = case.point.startswith("kafka.abort.") or chance.random() < 0.5
        killed = drivers.start(with_orphans if orphans else UNCOMMITTED)
        if killed.wait() != -signal.SIGKILL:
            _fail(f"{killed.plan.point} was not reached:\n{killed.output}")
    driver = drivers.start(point, fault)
    if not driver.wait_until_reached():
        _fail(f"{point} was not reached:\n{driver.output}")
    return driver


def _passing(case: Case, chance: random.Random, passings: dict[str, int]) -> int:
    """Which passing of the point meets the fault."""
    if case.on_slots:  # where the number of checkpoints depends on the machine
        if case.point.startswith(ONCE):
            return 1
        often = case.point in points_of("task", "pipelined task")
        return chance.randint(1, OF_TASKS_OFTEN if often else OFTEN)
    number = passings.get(case.point, 0)
    # In the first epoch there are no local copies.
    first = number // 3 + 1 if case.fault is Fault.LOCAL_COPY_DAMAGED else 1
    return chance.randint(first, max(first, number * 2 // 3))


def _let_worker_go_on(first: _Driver, drivers: _Drivers) -> None:
    """The worker of a dead driver goes on when the next driver has recovered."""
    first.wait()
    second = drivers.start("recover.abort.after:1", Fault.SECOND_DRIVER)
    if not second.wait_until_reached():
        _fail(f"the next driver ended:\n{second.output}")
    first.signs.give(ArmedFault.GO)
    _wait_for_group(first.process.pid or 0)
    second.signs.give(ArmedFault.GO)
    if second.wait():
        _fail(f"the next driver failed:\n{second.output}")


def _start_second(case: Case, first: _Driver, drivers: _Drivers, chance: random.Random) -> None:
    """While the first driver stands still, a second one starts; then the first goes on."""
    stop = chance.choice(SECOND_STOPS)
    second = drivers.start(stop, Fault.SECOND_DRIVER)
    # Without a protection, both have to be there for it to be missed; locks do not matter then.
    patience = DEADLINE / 2 if second.plan.without else HELD_UP
    if stop:
        second.wait_until_reached(patience)
    elif chance.random() < 0.5:  # else both at once
        _exit_code(second.process, patience)
    first.signs.give(ArmedFault.GO)
    if first.wait() not in {0, FENCED}:
        _fail(f"the first driver was not fenced:\n{first.output}")
    _wait_for_group(first.process.pid or 0)
    second.signs.give(ArmedFault.GO)
    code = second.wait()
    # The first one opens the log behind the second if it stood right before that.
    overtaken = code == FENCED and case.point == "log.open.before"
    if code and not overtaken:
        _fail(f"the second driver failed:\n{second.output}")


def _take_over(first: _Driver, drivers: _Drivers) -> None:
    """While the first driver is stopped, another ends the job; then the first is woken."""
    group = first.process.pid or 0
    try:
        _wait_until_stopped(group)
        second = drivers.start()
        if second.wait():
            _fail(f"the second driver could not take over:\n{second.output}")
    finally:
        first.signs.give(ArmedFault.GO)
        os.killpg(group, signal.SIGCONT)
    # Not fenced if it did not begin before the job ended, or had nothing left to do.
    if first.wait() not in {0, FENCED}:
        _fail(f"the driver that was woken was not fenced:\n{first.output}")
    _wait_for_group(group)


def _wait_until_stopped(pid: int) -> None:
    limit = time.monotonic() + DEADLINE
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        if time.monotonic() > limit:
            _fail(f"driver {pid} was not stopped")
        time.sleep(PAUSE / 2)


def _exit_code(process: ForkServerProcess, seconds: float) -> int | None:
    """The exit code of a process, waited for; None if it still runs."""
    limit = time.monotonic() + seconds
    while True:
        with _PROCESSES:
            code = process.exitcode
        if code is not None or time.monotonic() >= limit:
            return code
        time.sleep(PAUSE / 2)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_for_group(group: int) -> None:
    limit = time.monotonic() + DEADLINE
    while time.monotonic() < limit:
        if not group_lives(group):
            return
        time.sleep(PAUSE)
    _fail(f"processes of the dead driver {group} live on")


def count_passings(kind: str, address: str, directory: Path) -> dict[str, int]:
    """How often each point is passed in a run that nothing disturbs."""
    make_target(kind, address).create()
    drivers = _Drivers(DriverPlan(kind, address, directory / "checkpoints", directory, 1))
    driver = drivers.start(record=True)
    if driver.wait():
        _fail(f"the undisturbed run failed:\n{driver.output}")
    found: Counter[str] = Counter()
    for path in driver.plan.directory.iterdir():
        name = path.name.rpartition(".")[0]
        if name in CRASH_POINTS:
            found[name] += 1
    return dict(found)
