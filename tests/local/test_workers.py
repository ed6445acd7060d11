"""The processes of the local engine: who runs tasks, and how they end with each kind of end."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.support.nurseries import new_interpreter

from millstream.common import Configuration, Types
from millstream.datastream import (
    JobStatus,
    MapFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.engines.local import fork_server, pool
from millstream.engines.local.engine import EpochTasks
from millstream.engines.local.pool import WorkerPool
from millstream.engines.local.worker import RunMessage, TaskRequest
from millstream.errors import (
    ConfigurationError,
    EngineError,
    MillstreamError,
    WorkerLostError,
)
from millstream.graph.job_files import JobFiles
from millstream.runtime.user_code import portable_error
from millstream.testing.crash import group_lives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

PROGRAM = Path(__file__).parent / "local_program.py"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # One that is dead and not yet waited for does not count.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def names(directory: Path) -> set[int]:
    return {int(path.name) for path in directory.iterdir()} if directory.exists() else set()


def start(mode: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), mode, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Where(MapFunction):
    """(subtask, process) for each record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: object) -> object:
        return self.subtask, os.getpid()


def test_each_subtask_has_a_process(make: Make) -> None:
    env = make(3)
    numbers = env.from_sequence(0, 299).map(lambda n: n, Types.LONG())
    with numbers.key_by(lambda n: n).map(Where()).execute_and_collect() as records:  # type: ignore[union-attr]
        found = Counter(cast("Iterator[tuple[int, int]]", records))
    assert sum(found.values()) == 300
    assert sorted(subtask for subtask, _ in found) == [0, 1, 2]
    processes = {pid for _, pid in found}
    assert len(processes) == 3
    assert os.getpid() not in processes
    assert not any(alive(pid) for pid in processes)


def test_a_program_imports_nothing_heavy_and_leaves_no_process(tmp_path: Path) -> None:
    program = start("collect", tmp_path)
    out, error = program.communicate(timeout=120)
    assert out.splitlines() == [str(sum(range(100))), "[]"], error
    assert len(names(tmp_path / "workers")) == 2
    assert names(tmp_path / "closed") == names(tmp_path / "workers")
    assert not any(alive(pid) for pid in names(tmp_path / "workers"))


@pytest.mark.parametrize("mode", ["sleep", "spin"])
def test_workers_die_with_the_driver(tmp_path: Path, eventually: Eventually, mode: str) -> None:
    program = start(mode, tmp_path)
    eventually(lambda: len(names(tmp_path / "workers")) == 2, "both workers at work")
    started = time.monotonic()
    program.kill()
    program.communicate()
    eventually(lambda: not any(map(alive, names(tmp_path / "workers"))), "the workers' end")
    assert time.monotonic() - started < 30
    eventually(lambda: not group_lives(program.pid), "the end of all its other processes")


def test_an_interrupt_cancels(tmp_path: Path, eventually: Eventually) -> None:
    program = start("sleep", tmp_path)
    eventually(lambda: len(names(tmp_path / "workers")) == 2, "both workers at work")
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, error = program.communicate(timeout=120)
    assert program.returncode != 0
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert "worker process" not in error
    assert names(tmp_path / "closed") == names(tmp_path / "workers")
    assert not any(alive(pid) for pid in names(tmp_path / "workers"))


def test_cancelling_gives_up_what_runs(make: Make, tmp_path: Path, eventually: Eventually) -> None:
    directory = tmp_path / "processes"
    directory.mkdir()

    class Forever(MapFunction):
        def map(self, value: object) -> object:
            (directory / str(os.getpid())).touch()
            while True:
                time.sleep(0.01)

        def close(self) -> None:
            (tmp_path / "closed").touch()

    env = make(1)
    env.from_collection([1]).map(Forever()).print()
    client = env.execute_async("forever")
    eventually(lambda: bool(names(directory)), "a task at work")
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert (tmp_path / "closed").exists()
    assert not any(map(alive, names(directory)))


def test_a_worker_that_does_not_listen_is_killed(
    make: Make, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_PATIENCE", 0.2)
    processes = tmp_path / "processes"
    processes.mkdir()

    class Deaf(MapFunction):
        def map(self, value: object) -> object:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (processes / str(os.getpid())).touch()
            while True:
                time.sleep(0.01)

    env = make(1)
    env.from_collection([1]).map(Deaf()).print()
    client = env.execute_async("deaf")
    eventually(lambda: bool(names(processes)), "a task at work")
    client.cancel().result()
    assert not any(map(alive, names(processes)))


def test_a_lost_worker_is_named_and_replaced(make: Make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    class Die(MapFunction):
        def map(self, value: int) -> int:
            if value == 50 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return value

    def program() -> Any:
        env = make(2)
        numbers = env.from_sequence(0, 99).map(lambda n: n, Types.LONG())
        return env, numbers.key_by(lambda n: n).map(Die(), Types.LONG())

    _, stream = program()
    with (
        pytest.raises(
            WorkerLostError, match=r"worker process \d+ was killed with SIGKILL .* stage 1"
        ),
        stream.execute_and_collect() as records,
    ):
        list(records)
    flag.unlink()
    env, stream = program()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 10))
    with stream.execute_and_collect() as records:
        assert sorted(records) == list(range(100))
    assert flag.exists()


class OddError(Exception):
    """Cannot be made again of its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"odd {one + two}")


def test_an_error_that_cannot_be_unpickled_comes_as_text() -> None:
    error = pickle.loads(portable_error(OddError(1, 2)))
    assert type(error) is MillstreamError
    assert "OddError: odd 3" in str(error)
    error = pickle.loads(portable_error(KeyError("key")))
    assert type(error) is KeyError
    assert f"in worker process {os.getpid()}:" in error.__notes__[0]


def test_spark_dataframes_need_spark(make: Make) -> None:
    class Frame:
        isStreaming = True  # noqa: N815 - Spark's
        schema = type("Schema", (), {"jsonValue": lambda _: {"type": "struct", "fields": []}})()

    env = make(1)
    env.from_spark(Frame(), type_info=Types.LONG(), name="orders").print()
    with pytest.raises(
        MillstreamError, match=r"'Source: orders' .*test_workers.py.*execution.target: spark"
    ):
        env.execute()


def test_targets() -> None:
    def target(name: str) -> str:
        configuration = Configuration()
        configuration.set_string("execution.target", name)
        from millstream.configuration import options

        return configuration.get(options.TARGET)

    assert target("local") == "local"
    assert target("Spark") == target("remote") == target("yarn-application") == "spark"
    with pytest.raises(ConfigurationError, match=r"execution\.target is 'flnk'"):
        target("flnk")


def test_a_pool_without_its_nursery_can_start_nothing(eventually: Eventually) -> None:
    workers = WorkerPool(1)
    os.kill(workers._fork_server._pid, signal.SIGKILL)
    eventually(lambda: not alive(workers._fork_server._pid), "its end")
    request = TaskRequest(Path("no plan"), 0, 0, 1, [], Path("nowhere"))
    workers.begin_run(RunMessage(b"", cast("Any", None)))
    with pytest.raises(EngineError, match="no worker process can be started"):
        workers.run([request])
    workers.close()


def test_a_large_plan_for_a_worker_that_does_not_read_can_be_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_PATIENCE", 0.2)
    workers = WorkerPool(1)
    workers.begin_run(RunMessage(b"", JobFiles()))
    with pytest.raises(FileNotFoundError):
        workers.run([TaskRequest(tmp_path / "nowhere", 0, 0, 1, [], tmp_path / "frames")])
    (pid,) = workers.pids
    os.kill(pid, signal.SIGSTOP)
    cancelled = threading.Event()
    cancelled.set()
    graph = SimpleNamespace(stages=[SimpleNamespace(level=0, parallelism=1)])
    directory = tmp_path / "epochs"
    tasks = EpochTasks(cast("Any", graph), directory, lambda each: workers.run(each, cancelled))
    errors: list[WorkerLostError] = []

    def run() -> None:
        try:
            tasks.run(cast("Any", SimpleNamespace(epoch=3, content=bytes(4_000_000))))
        except WorkerLostError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    returned = not thread.is_alive()
    if not returned:
        os.kill(pid, signal.SIGKILL)  # frees the thread
    thread.join(20)
    workers.close()
    assert returned
    assert "aborted" in str(errors)
    assert not alive(pid)
    assert not list(directory.iterdir())


def test_a_nursery_holds_no_connection_of_another(tmp_path: Path, eventually: Eventually) -> None:
    """Else a worker would not see that the driver is gone."""
    first = WorkerPool(1)
    first.begin_run(RunMessage(b"", JobFiles()))
    (tmp_path / "plan").write_bytes(b"no plan")
    request = TaskRequest(tmp_path / "plan", 0, 0, 1, [], tmp_path / "frames")
    with pytest.raises(pickle.UnpicklingError):
        first.run([request])
    (pid,) = first.pids
    second = WorkerPool(1)
    worker = first._workers[0]
    assert worker is not None
    worker.connection.close()
    eventually(lambda: not alive(pid), "the worker's end")
    second.close()
    first.close()


@pytest.mark.extended
def test_a_job_beside_a_database_of_the_program(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB's threads are not forked, and what it counts of them would be waited for for ever."""
    from rocksdict import Rdict

    monkeypatch.setattr(fork_server, "_new_interpreter", new_interpreter)
    mine = Rdict(str(tmp_path / "mine"))
    mine["a"] = 1
    mine.flush()
    env = make(settings={"state.backend.type": "rocksdb"})
    env.set_parallelism(2)
    records = env.from_collection([("a", 1), ("b", 2), ("a", 3)])
    sums = records.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    with cast("Any", sums.execute_and_collect()) as results:
        assert sorted(results) == [("a", 1), ("a", 4), ("b", 2)]
    mine.close()


@pytest.mark.extended
def test_a_job_of_a_process_forked_from_one_with_a_database(tmp_path: Path) -> None:
    """It has none of RocksDB's threads, and what counts them all the same."""
    program = Path(__file__).parent / "forked_program.py"
    for first in ("rocksdict", "millstream"):
        started = subprocess.run(
            [sys.executable, str(program), str(tmp_path / first), first],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert started.stdout == "[('a', 1), ('a', 4), ('b', 2)]\nFalse True\n", started.stderr


def test_a_job_ends_though_the_program_has_forked(make: Make) -> None:
    env = make()
    env.from_collection([1, 2, 3], Types.LONG()).map(lambda n: n).print()
    client = env.execute_async("forked")
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        client.get_job_execution_result().result()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_workers_need_not_import_what_arrow_does_at_its_first_conversion(tmp_path: Path) -> None:
    """Else each slot of each run would import pandas while its first records wait."""
    program = tmp_path / "forks.py"
    program.write_text(
        "import sys\n"
        "from millstream.engines.local.fork_server import ForkServer\n"
        "def serve(connection):\n"
        "    connection.send('pandas' in sys.modules)\n"
        "server = ForkServer(serve)\n"
        "pid, connection = server.fork()\n"
        "print('pandas' in sys.modules, connection.recv())\n"
        "server.wait(pid)\n"
        "server.close()\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
