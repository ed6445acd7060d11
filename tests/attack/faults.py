"""Every kind of fault: what is done to the attacked job, and what it must do then by itself.

What it is: functions from the attack to nothing.  A fault that leaves the job alive returns when
the fault is over; one that ends the driver returns when it has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from tests.attack.attack_job import CUT_LINK, CUT_SLOT_OFF
from tests.attack.drivers import kill_process, wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from tests.attack.attack import Attack
    from tests.attack.drivers import Driver

__all__ = ["FAULTS", "ON_SLOTS"]

#: Seconds in which a driver must have noticed that it can do nothing any more.
_NOTICED: Final = 90.0
#: What the message of a driver that lost its JVM names.
_JVM_IS_GONE: Final = "JVM"
#: What the message of a driver that was overtaken names.
_FENCED: Final = "FencedError"


def everything_killed(attack: Attack) -> None:
    """kill -9 of the driver, the JVM and all workers."""
    attack.driver.kill_all()


def driver_killed(attack: Attack) -> None:
    """kill -9 of the driver alone; the JVM and its workers find out by themselves."""
    attack.driver.kill()
    wait_until(lambda: not attack.driver.processes(), _NOTICED, "a driver's processes end with it")


def worker_killed(attack: Attack) -> None:
    """kill -9 of one Python worker."""
    workers = attack.driver.workers()
    if workers:
        kill_process(attack.chance.choice(workers))


def all_workers_killed(attack: Attack) -> None:
    """kill -9 of all Python workers."""
    for worker in attack.driver.workers():
        kill_process(worker)


def slot_stopped(attack: Attack) -> None:
    """SIGSTOP of one slot, for longer than its driver waits for a sign of it; then it is woken."""
    slots = attack.driver.workers()
    if slots:
        pid = attack.chance.choice(slots).pid
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGSTOP)
            attack.rest(attack.chance.uniform(0.5, 4.0))
            os.kill(pid, signal.SIGCONT)


def link_cut(attack: Attack) -> None:
    """The connection between the slots ends."""
    attack.driver.signal(CUT_LINK)


def slot_cut_off(attack: Attack) -> None:
    """The connection of a slot with its driver ends."""
    attack.driver.signal(CUT_SLOT_OFF)


def jvm_killed(attack: Attack) -> None:
    """kill -9 of the JVM, as by the OOM killer: the driver says so and ends."""
    jvm = attack.driver.jvm()
    assert jvm is not None, attack.driver.tail()
    kill_process(jvm)
    code = attack.driver.wait_for_end(_NOTICED)
    assert code != 0, "a driver without its JVM ended as if all were well"
    assert _JVM_IS_GONE in attack.driver.tail(), attack.driver.tail()


def killed_at_start(attack: Attack) -> None:
    """kill -9 of everything, and of the next driver while it starts."""
    attack.driver.kill_all()
    attack.start_driver()
    attack.rest(attack.chance.uniform(0.5, 4.0 if attack.on_slots else 16.0))
    attack.driver.kill_all()


def stopped_and_woken(attack: Attack) -> None:
    """SIGSTOP of everything for some seconds."""
    attack.driver.stop()
    attack.rest(attack.chance.uniform(1.0, 8.0))
    attack.driver.wake()


def overtaken_while_stopped(attack: Attack) -> None:
    """A stopped driver is replaced; when it wakes up it has to end."""
    old = attack.driver
    old.stop()
    attack.start_driver()
    attack.wait_for_output("the replacement of a stopped driver")
    old.wake()
    _ends_fenced(old)


def twin(attack: Attack) -> None:
    """A second driver of the same job is started beside a healthy one, which has to end."""
    old = attack.driver
    attack.start_driver()
    _ends_fenced(old)


def interrupted(attack: Attack) -> None:
    """Ctrl-C."""
    attack.driver.interrupt()
    attack.driver.wait_for_end(_NOTICED)
    wait_until(lambda: not attack.driver.processes(), _NOTICED, "Ctrl-C ends all processes")


def database_crashed(attack: Attack) -> None:
    """PostgreSQL ends at once and recovers; prepared transactions survive."""
    attack.crash_database(attack.chance.uniform(0.0, 5.0))


def database_crashed_while_kafka_is_slow(attack: Attack) -> None:
    """As above, with messages on their way: their transaction is aborted under them."""
    attack.kafka_relay.slow_produce = 0.4
    attack.rest(2.0)
    attack.crash_database(attack.chance.uniform(0.0, 2.0))
    attack.rest(2.0)
    attack.kafka_relay.slow_produce = 0.0


def sessions_terminated(attack: Attack) -> None:
    """An administrator ends all sessions of the database."""
    with psycopg.connect(attack.server.conninfo(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


def connections_cut(attack: Attack) -> None:
    """Every connection to both servers is cut, several times."""
    for _ in range(attack.chance.choice([1, 1, 3])):
        attack.kafka_relay.cut()
        attack.database_relay.cut()
        attack.rest(attack.chance.uniform(0.0, 0.5))


def broker_stopped(attack: Attack) -> None:
    """The broker does not answer for some seconds."""
    os.kill(attack.broker_pid, signal.SIGSTOP)
    attack.rest(attack.chance.uniform(1.0, 8.0))
    os.kill(attack.broker_pid, signal.SIGCONT)


def slow_produce(attack: Attack) -> None:
    """Each Produce request takes half a second for a while, and connections are cut in between."""
    attack.kafka_relay.slow_produce = 0.5
    attack.rest(3.0)
    attack.kafka_relay.cut()
    attack.rest(2.0)
    attack.kafka_relay.slow_produce = 0.0


def disk_full(attack: Attack) -> None:
    """The file system of the checkpoints has no room for some seconds."""
    filler = Path(attack.checkpoints) / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
    except OSError:
        attack.rest(attack.chance.uniform(2.0, 6.0))
    filler.unlink()


def local_state_damaged(attack: Attack) -> None:
    """Everything is killed; a bit of each local copy of state is flipped before the start."""
    attack.driver.kill_all()
    assert _flip_bytes(Path(attack.local), attack.chance), "there is no local state to damage"


def local_state_damaged_in_a_run(attack: Attack) -> None:
    """Local copies are damaged under a running job, and its workers killed."""
    _flip_bytes(Path(attack.local), attack.chance)
    all_workers_killed(attack)


def _flip_bytes(root: Path, chance: random.Random) -> int:
    """Flip a byte in a table file of each directory; how many."""
    flipped = 0
    directories = sorted({path.parent for path in root.rglob("*.sst")})
    for directory in directories:
        tables = sorted(directory.glob("*.sst"))
        if not tables:  # the job has cleaned up
            continue
        path = chance.choice(tables)
        try:
            size = path.stat().st_size
            with path.open("r+b") as file:
                place = chance.randrange(size)
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 1 << chance.randrange(8)]))
        except FileNotFoundError:  # the job has cleaned up
            continue
        flipped += 1
    return flipped


def _ends_fenced(old: Driver) -> None:
    code = old.wait_for_end(_NOTICED)
    assert code != 0, "an overtaken driver ended as if all were well"
    assert _FENCED in old.tail(), old.tail()


def _named(
    functions: Iterable[Callable[[Attack], None]],
) -> dict[str, Callable[[Attack], None]]:
    return {function.__name__.replace("_", " "): function for function in functions}


#: Name in the report -> fault.
FAULTS: Final = _named(
    (
        everything_killed,
        driver_killed,
        worker_killed,
        all_workers_killed,
        jvm_killed,
        killed_at_start,
        stopped_and_woken,
        overtaken_while_stopped,
        twin,
        interrupted,
        database_crashed,
        database_crashed_while_kafka_is_slow,
        sessions_terminated,
        connections_cut,
        broker_stopped,
        slow_produce,
        disk_full,
        local_state_damaged,
        local_state_damaged_in_a_run,
    )
)
#: The same where tasks live on.
ON_SLOTS: Final = {
    name: fault for name, fault in FAULTS.items() if fault is not jvm_killed
} | _named((slot_stopped, link_cut, slot_cut_off))
