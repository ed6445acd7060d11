"""The order of the tests, where their files are, and what all of them share.

What it is, first: tests on Spark go first, then those that take minutes, then the rest.
``make test`` gives the first third of the tests to one process and the others to two more; whoever
is ready takes over tests from the end of what another has left.  So one process runs the tests on
Spark, with one session, while the others run those without, and what is left at the end is short.

Second: temporary files are kept in memory where there is room for them.  Checkpoints are many small
files, flushed one by one: on a disk that others use as well, tests wait for it most of the time.
They kill processes, never the machine, so what is flushed and what is not makes no difference.
``TMPDIR`` says otherwise; files of failed tests are moved to the disk.

Third: property tests try the same examples each time, whatever the machine and however slow it is.
``--hypothesis-seed=N`` tries others, and replays them.

Fourth: servers and faults for tests of several directories.  A server is started when the first
test of a process asks for it, and stopped with the process.

Fifth: what is marked ``both_engines`` runs a second time, with ``MiniCluster`` on the tasks of the
pipelined engine, unless a mark ``epochs_only`` gives a reason (``docs/concepts/engines.md``).
The second run is ``extended``, unless the test is about barriers, time or order, and says so.

Sixth: a test that takes more than ten seconds, and is in ``make test``, fails
(``tests/support/time_limits.py``).

Seventh: the time zone of the machine, the default of ``table.local-time-zone``, is UTC everywhere.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from millstream.testing.mini_cluster import MiniCluster

# So that ``tests.databases`` and others are found whatever starts pytest.
sys.path.insert(0, str(Path(__file__).parents[1]))

# For this process and for those that tests start.
os.environ["TZ"] = "UTC"
time.tzset()

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from tests.databases.server import PostgresServer
    from tests.kafka.broker import Broker
    from tests.objects.server import S3Server

#: Where Linux keeps files in memory, and bytes that must be free there: several times what is used.
MEMORY: Final = Path("/dev/shm")
ROOM: Final = 2 << 30
#: Of a run's directory; the number of its process follows.
PREFIX: Final = "millstream-tests-"

#: Of Spark's JVMs, which live for a minute or so: Spark's own classes are not verified, and there
#: is room for these and for what they make without collecting garbage again and again.  Who says
#: what classes to share has no archive made in the background (``class_archive.py``).
JVM_OPTIONS: Final = (
    "-Xshare:auto -XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote -XX:MetaspaceSize=256m -Xms512m -Xmn256m"
)

#: What differs most between the engines: ``both_engines(about="time")`` is in ``make test`` twice.
ABOUT: Final = ("barriers", "order", "time")

_DIRECTORY: Final = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the directory of this run; the processes started by it inherit the choice."""
    _configure_hypothesis(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As shells start what runs in the background; programs of tests are to be interrupted.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        return
    _remove_left_over()
    home = MEMORY if "TMPDIR" not in os.environ and _has_room() else tempfile.gettempdir()
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=home))
    directory.chmod(0o755)  # a database server may run as another user
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(directory)
    tempfile.tempdir = None  # forget what was found before
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
    config.stash[_DIRECTORY] = directory


def _configure_hypothesis(config: pytest.Config) -> None:
    """Before the tests are imported: their own settings change these."""
    from tests.support.examples import FULL, register_profiles

    register_profiles(derandomize=config.getoption("--hypothesis-seed", None) is None)
    settings.load_profile(config.getoption("--hypothesis-profile", None) or FULL)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Move what failed tests have left to where it does not use up memory."""
    directory = config.stash.get(_DIRECTORY, None)
    failures = terminalreporter.stats.get("failed") or terminalreporter.stats.get("error")
    if directory is not None and failures:
        kept = Path(tempfile.mkdtemp(prefix="millstream-failed-", dir="/tmp"))
        with contextlib.suppress(shutil.Error):  # a process that ends may delete files meanwhile
            shutil.copytree(directory, kept, symlinks=True, dirs_exist_ok=True)
        terminalreporter.write_line(f"files of failed tests: {directory} is now {kept}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the memory back; programs of tests need not execute what they make."""
    from millstream.datastream.running_jobs import note_use

    note_use()
    gc.unfreeze()  # or libraries tell of what they take for leaks
    directory = config.stash.get(_DIRECTORY, None)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def _has_room() -> bool:
    with contextlib.suppress(OSError):
        return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM
    return False


def _remove_left_over() -> None:
    """Remove the directories of runs that were killed."""
    for parent in {MEMORY, Path(tempfile.gettempdir())}:
        for path in parent.glob(f"{PREFIX}*"):
            try:
                os.kill(int(path.name.removeprefix(PREFIX).partition("-")[0]), 0)
            except ProcessLookupError:
                shutil.rmtree(path, ignore_errors=True)
            except (ValueError, OSError):
                continue  # of another user, or not of this kind


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests on both engines that are marked so; the name of the first stays as it is."""
    node = metafunc.definition
    if node.get_closest_marker("both_engines"):
        engines = [pytest.param(False, id=pytest.HIDDEN_PARAM), pytest.param(True, id="pipelined")]
        metafunc.parametrize("_tasks_live_on", engines, indirect=True)


@pytest.fixture(autouse=True)
def _tasks_live_on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which tasks ``MiniCluster`` runs."""
    if getattr(request, "param", False):
        monkeypatch.setattr(MiniCluster, "pipelined", True)


# Before pytest looks at the marks to deselect tests.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests; those of equal rank stay in the order of their files."""
    items[:] = _chosen(items)
    _sample(items)
    # Processes that share the tests must have the same names, or none begins.
    assert [item.nodeid for item in items if " at 0x" in item.nodeid] == []
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    items.sort(key=_rank)


def _chosen(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Leave out what is not for the pipelined engine; only a soak runs more than a sample."""
    seen: Counter[str] = Counter()
    for item in items:
        on_both = item.get_closest_marker("both_engines")
        if on_both is None or not _is_pipelined(item):
            yield item
        elif item.get_closest_marker("epochs_only") is None:
            if on_both.kwargs.get("about") not in ABOUT:
                item.add_marker(pytest.mark.extended)
            function = item.nodeid.partition("[")[0]
            if seen[function] % on_both.kwargs.get("every", 1):
                item.add_marker(pytest.mark.soak)
            seen[function] += 1
            yield item


def _sample(items: list[pytest.Item]) -> None:
    """Leave to ``make test-rest`` what ``sampled`` tests do not show in ``make test``."""
    seen: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            function = item.nodeid.partition("[")[0]
            if seen[function] % sampled.kwargs["every"]:
                item.add_marker(pytest.mark.extended)
            seen[function] += 1


def _is_pipelined(item: pytest.Item) -> bool:
    spec = getattr(item, "callspec", None)
    return spec is not None and bool(spec.params.get("_tasks_live_on"))


def _rank(item: pytest.Item) -> tuple[bool, bool]:
    """Tests that need more time than others say so by a time-out of their own."""
    return item.get_closest_marker("spark") is None, item.get_closest_marker("timeout") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail tests of ``make test`` that take too long; what fixtures take is not theirs alone."""
    from tests.support.time_limits import Moment, check

    before = Moment.now()
    yield
    check(item, Moment.now().since(before))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before a test uses RocksDB."""
    if session.items and not session.config.getoption("collectonly"):
        from tests.support.nurseries import fork_twin

        fork_twin(Path(tempfile.gettempdir()))
        gc.freeze()  # thousands of modules and tests, which no collection frees


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The session of this process; whoever uses it gets the mark ``spark``."""
    from millstream.common import Configuration
    from millstream.engines.spark.session import get_session

    source = str(Path(__file__).parents[1] / "src")
    # Workers know nothing of pytest's ``pythonpath``.
    known = os.environ.get("PYTHONPATH", "")
    if source not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (source, known) if part)
    configuration = Configuration()
    configuration.set_string("millstream.spark.master", "local[2]")
    return get_session(configuration)


@pytest.fixture(scope="session")
def forks() -> Iterator[None]:
    """A process to fork drivers from, for ``run_forked`` and the crash matrix."""
    from tests.forked import fork_server

    with fork_server():
        yield


@pytest.fixture
def forked_children(forks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``check_sink`` fork the processes that it kills."""
    from tests.forked import run_child

    from millstream.testing import sink_processes

    monkeypatch.setattr(sink_processes, "_start_child", run_child)


@pytest.fixture
def own_clients() -> Iterator[None]:
    """Kafka clients that end with the test, as in a new worker process."""
    yield
    _end_clients()


@pytest.fixture(autouse=True)
def _clients_that_rest(request: pytest.FixtureRequest) -> Iterator[None]:
    """No client of the shared broker goes on behind its test.

    The broker answers at once, and without records, a consumer that waits for what lies behind an
    open transaction; and a producer of a topic that is gone asks for its leader without a pause.
    Each took a third of a core until the process ended.
    """
    if "broker" not in request.fixturenames:
        yield
        return
    broker: Broker = request.getfixturevalue("broker")
    yield
    broker.rest()
    _end_clients()


def _end_clients() -> None:
    from millstream.connectors.kafka import producers, reader

    producers.discard_producers()
    reader.close_consumers()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server; each test takes a schema of its own."""
    from tests.databases.server import PostgresServer

    started = PostgresServer()
    yield started
    started.stop()


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    """How to connect to a new schema."""
    yield server.new_schema()
    server.forget_prepared()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker; each test makes topics of its own."""
    from tests.kafka.broker import running_broker

    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server; each test takes a bucket of its own."""
    from tests.objects.server import S3Server

    started = S3Server()
    yield started
    started.stop()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new bucket, as a URI; the environment has what is needed to open it."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    name = s3_server.new_bucket()
    yield f"s3://{name}"
    s3_server.drop(name)


@pytest.fixture
def disturb(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[str, Callable[[], None]], None]]:
    """At a passing of a crash point ("name:3", say) do something, once, and go on."""
    from millstream import crash_points

    def arm(point: str, action: Callable[[], None]) -> None:
        counts = tmp_path / "passings"
        counts.mkdir()
        monkeypatch.setenv(crash_points.COUNT_VARIABLE, str(counts))
        crash_points.arm(point, lambda _: action())

    yield arm
    crash_points.arm("")
