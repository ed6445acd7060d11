"""The Spark session of a job: the active one or a new one, its options, and its class archive.

Class-data sharing halves the start of the next session.  The JVM of a session without an archive
lists the classes it loads; after the session a process of low priority makes the archive from that
list (``engines/spark/make_class_archive.py``), in the user's cache directory; the JVMs of later
sessions map it instead of reading and linking some twenty thousand classes.  The key of an archive
is all that it depends on: the Java, the files of Spark, the options and what may change the class
path.  A JVM runs without an archive that does not fit.  Failures are logged at debug level.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.resources
import json
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark
from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, is_remote

from millstream.configuration import options
from millstream.directories import run_directory, socket_directory
from millstream.engines.spark import make_class_archive
from millstream.engines.spark.java import cache_directory, find_java
from millstream.errors import EngineError
from millstream.graph.job_files import FileUse, job_files_of
from millstream.runtime.job_files import extract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from millstream.configuration.configuration import Configuration
    from millstream.engines.spark.java import JavaRuntime


_LOG: Final = logging.getLogger("millstream")

#: What adds options to a JVM, or entries to its class path.
_VARIABLES: Final = (
    *("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
    *("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
)
_SETTINGS: Final = (
    *("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"),
    *("spark.driver.extraClassPath", "spark.driver.memory"),
)
#: Who gives one of these has an archive of his own, or wants none.
_OF_THE_USER: Final = ("-Xshare", "SharedArchive", "ArchiveClassesAtExit", "LoadedClassList")
#: Seconds until what has failed is tried again.
_PATIENCE: Final = 7 * 86_400
#: Characters of a key, in names of files.
_KEY: Final = 16


class ClassArchive:
    """The archive for the JVM of one session."""

    def __init__(self, directory: Path, key: str, java: Path) -> None:
        self.path = directory / f"classes-{key}.jsa"
        self._java = java
        self._failed = self.path.with_suffix(".failed")
        #: Where the JVM writes down what it loads; None if it does not.
        self._loaded: Path | None = None
        self._used = False
        #: What the archive is made with, once it is known.
        self._task: dict[str, object] | None = None

    @classmethod
    def of(
        cls, directory: Path, java: JavaRuntime, home: Path, settings: Mapping[str, object]
    ) -> ClassArchive | None:
        """The archive for a session; None if the user has told Java otherwise."""
        options_and_paths = [os.environ.get(name, "") for name in _VARIABLES]
        options_and_paths += [str(settings.get(name, "")) for name in _SETTINGS]
        if any(word in text for text in options_and_paths for word in _OF_THE_USER):
            return None
        try:
            return cls(directory, key_of(java.executable, home, options_and_paths), java.executable)
        except OSError:
            _LOG.debug("there is no archive of Spark's classes", exc_info=True)
            return None

    def java_options(self, temporary: Path) -> list[str]:
        """Options of the session's JVM: to use the archive, or else to write down what it loads.

        Args:
            temporary: a directory that is removed after the session.
        """
        try:
            if self.path.exists():
                os.utime(self.path)  # old are those that nobody has used for long
                self._used = True
                return [*make_class_archive.QUIET, f'-XX:SharedArchiveFile="{self.path}"']
            if self._has_failed():
                _LOG.debug("no archive of Spark's classes could be made: see %s", self._failed)
                return []
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            _LOG.debug("there is no archive of Spark's classes", exc_info=True)
            return []
        self._loaded = temporary / "classes.list"
        return [f'-XX:DumpLoadedClassList="{self._loaded}"']

    def _has_failed(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return time.time() - self._failed.stat().st_mtime < _PATIENCE
        return False

    def give_up(self, reason: str) -> bool:
        """Remove an archive that the JVM could not use, and make none for some days.

        Returns:
            Whether the session was to use it.
        """
        if self._used:
            self._used = False
            _LOG.debug("the archive of Spark's classes %s is removed: %s", self.path, reason)
            with contextlib.suppress(OSError):
                self._failed.write_text(f"{reason}\n")
                self.path.unlink(missing_ok=True)
            return True
        return False

    def check(self, jvm: Any) -> None:
        """Ask the JVM of the session, near its end, what the archive must fit."""
        try:
            java = jvm.java.lang
            if self._used and "sharing" not in java.System.getProperty("java.vm.info"):
                self.give_up("the JVM has started without it")
            if self._loaded is not None:
                management = java.management.ManagementFactory.getRuntimeMXBean()
                options = [str(option) for option in management.getInputArguments()]
                self._task = {
                    "java": str(self._java),
                    "class_path": str(java.System.getProperty("java.class.path")),
                    "options": [each for each in options if "LoadedClassList" not in each],
                }
        except (Py4JError, OSError):
            _LOG.debug("no archive of Spark's classes will be made", exc_info=True)

    def make(self) -> None:
        """After the end of the JVM: start the process that makes the archive."""
        if self._task is None or self._loaded is None:
            return
        # The directory of this run goes with it.
        kept = self.path.with_name(f"{self.path.stem}-{os.getpid()}.list")
        task = {**self._task, "loaded": str(kept), "archive": str(self.path)}
        try:
            shutil.move(self._loaded, kept)
            process = subprocess.Popen(  # noqa: S603 - this very Python
                # By its path and alone: it needs nothing but Python, and must start fast.
                [sys.executable, "-I", "-S", make_class_archive.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            with process.stdin as stream:  # type: ignore[union-attr] # it is a pipe
                stream.write(json.dumps(task).encode())
        except OSError:
            _LOG.debug("no archive of Spark's classes is made", exc_info=True)
        else:
            _LOG.debug("process %d makes %s", process.pid, self.path)
            # Nobody waits for it: it continues when this process has ended.
            process.returncode = 0


def key_of(java: Path, home: Path, options_and_paths: Iterable[str]) -> str:
    """Return what an archive depends on, as a part of its name."""
    digest = hashlib.sha256()
    files = [java, java.resolve().parent.parent / "lib" / "modules"]
    files += sorted((home / "jars").iterdir())
    for path in files:
        found = path.stat()
        digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    for text in (*options_and_paths, str(home)):
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()[:_KEY]


#: The description of a job of our own, which has the workers' daemon started.
WARM_UP: Final = "Millstream: Python workers are started"
_LOCAL: Final = re.compile(r"local(?:\[\s*(\d+)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*")
_EPOCHS: Final = "millstream.execution: epochs"
#: Set by spark-submit, whose JVM starts this process.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def is_submitted() -> bool:
    """Return whether spark-submit runs this program."""
    return _SUBMITTED in os.environ


def configured_master(configuration: Configuration) -> str | None:
    """The master that a job's options name; None: that of spark-submit, or all of this machine."""
    if configuration.contains(options.SPARK_MASTER):
        return configuration.get(options.SPARK_MASTER) or None
    return configuration.get_string("spark.master", "") or None


def why_never(configuration: Configuration, slots: int) -> str | None:
    """Why a job can never run in slots of the session that it would start; None: it may."""
    # What is asked of a session that is there is that session's to say.
    sql = sys.modules.get("pyspark.sql")
    if sql is not None and sql.SparkSession.getActiveSession() is not None:
        return None
    master = configured_master(configuration)
    if master is None:
        if is_submitted():
            return None
        master = "local[*]"
    return SlotLimits(master, configuration.get_string).why_never(slots)


class SlotLimits:
    """The limits that master and options of a session set.

    Args:
        master: Spark's.
        option: the value of one of Spark's options, or what is given for it.
        total: how many task slots there are, where all are in one process; not given before it
            runs.
    """

    def __init__(
        self,
        master: str,
        option: Callable[[str, str], str],
        total: Callable[[], int] | None = None,
    ) -> None:
        self._master = master
        self._option = option
        self._total = total
        #: Cores that each task takes.
        self.task_cpus = int(option("spark.task.cpus", "1"))

    @property
    def _in_one_process(self) -> bool:
        return self._master == "local" or self._master.startswith("local[")

    def why_never(self, slots: int) -> str | None:
        """Why Spark will never start so many tasks together, and what to do; None: it may."""
        dynamic = self._option("spark.dynamicAllocation.enabled", "false").lower() == "true"
        if dynamic and not self._in_one_process:
            return (
                "Spark runs no barrier stage, which a pipelined job is, with dynamic allocation:"
                " set spark.dynamicAllocation.enabled to false and spark.executor.instances to what"
                f" the job needs, or run it with {_EPOCHS}"
            )
        most, why = self._most()
        if most is None or most >= slots:
            return None
        return (
            f"the job needs {counted(slots, 'task slot')} side by side, as many as its widest"
            f" stage has subtasks, and Spark can have {most} ({why}). {self.remedy(slots)}, or"
            f" run it with {_EPOCHS}"
        )

    def _most(self) -> tuple[int | None, str]:
        """Return how many there will ever be, if that is known, and why."""
        cpus = self.task_cpus
        each = "" if cpus == 1 else f", spark.task.cpus {cpus}"
        if self._in_one_process:
            return self._in_this_process(), f"master {self._master}{each}"
        cluster = _LOCAL_CLUSTER.fullmatch(self._master)
        if cluster is not None:
            executors, cores = map(int, cluster.groups())
            return executors * (cores // cpus), f"master {self._master}{each}"
        limit = self._option("spark.cores.max", "")
        if self._master.startswith("spark:"):
            # It takes all cores that it can have, whatever spark.executor.instances says.
            return (int(limit) // cpus, f"spark.cores.max {limit}{each}") if limit else (None, "")
        instances = self._option("spark.executor.instances", "")
        cores_each = self._option("spark.executor.cores", "")
        if instances and cores_each:
            words = f"spark.executor.instances {instances}, spark.executor.cores {cores_each}{each}"
            return int(instances) * (int(cores_each) // cpus), words
        return None, ""

    def _in_this_process(self) -> int | None:
        if self._total is not None:
            return self._total()
        cores = _LOCAL.fullmatch(self._master)
        return None if cores is None else int(cores[1] or 1) // self.task_cpus

    def remedy(self, slots: int) -> str:
        """Return what a user can do who wants so many."""
        cores = slots * self.task_cpus
        words = f"Lower its parallelism, or give the session {counted(cores, 'core')}"
        if self._in_one_process:
            return f"{words}: master local[{cores}]"
        if self._master.startswith("local-cluster"):
            return words
        if self._master.startswith("spark:"):
            return (
                f"{words}: look at spark.cores.max and at the workers and applications of the"
                " master"
            )
        return f"{words}: spark.executor.instances times spark.executor.cores"


def counted(number: int, thing: str) -> str:
    """So many things, in words."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "millstream.engines.spark.worker_daemon",
    # The JVM schedules tasks and moves frames; compiling that to the last would take the cores from
    # the Python workers for a minute or more.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Frames go from process to process of one machine.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}
#: Of a session on this machine alone.
_LOOPBACK: Final = "127.0.0.1"
_LOCAL_OPTIONS: Final = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.authenticate": "true",
}
_SECRET: Final = "spark.authenticate.secret"  # noqa: S105 - the name of an option
#: Characters that Spark wants to be left to a socket's name: its directory may have 60.
_SOCKET_NAME: Final = 46
#: Seconds that the JVM may take to end.
_END_SECONDS: Final = 10.0


def start_session(configuration: Configuration) -> SparkSession:
    """A new session on ``local[*]`` or the configured master; under spark-submit, on its master.

    Raises:
        ConfigurationError: there is no Java.
        EngineError: Spark's JVM does not start.
    """
    executable = python_executable(configuration)
    if executable:
        os.environ["PYSPARK_PYTHON"] = executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    own = {key: value for key, value in configuration.to_dict().items() if key.startswith("spark.")}
    given = configured_master(configuration)
    builder = SparkSession.builder.appName("millstream")
    if given is None and is_submitted():
        return _get(builder, own)
    master = given or "local[*]"
    # One that goes with another master would take its place.
    own.pop("spark.master", None)
    settings = {**_OPTIONS, **own}
    if master.startswith("local"):
        settings = {**_OPTIONS, **_LOCAL_OPTIONS, **own}
    launched = SparkContext._gateway is None and not is_submitted()  # noqa: SLF001
    archive = None
    if launched:
        keeps = configuration.get(options.SPARK_CLASS_ARCHIVE)
        found, archive = _launch(settings, master, archived=keeps)
        settings = {**found, **settings}
    if settings.get("spark.authenticate") == "true":
        # Now that the JVM runs: what it was started with stands in the list of processes.
        settings.setdefault(_SECRET, secrets.token_hex(32))
    session = _get(builder.master(master), settings)
    if launched:
        warming = warm_up(session) if master.startswith("local") else None
        atexit.register(_end, session, warming, archive)
    return session


def python_executable(configuration: Configuration) -> str:
    """The Python of the workers; one that is in an archive of the program's is taken out here.

    Raises:
        ConfigurationError: the archive is not there, or is none.
    """
    given = configuration.get(options.PYTHON_EXECUTABLE)
    target, _, rest = given.partition("/")
    for file in job_files_of(configuration):
        if not rest or file.use is not FileUse.ARCHIVE or file.name != target:
            continue
        directory = Path(file.path)
        if not file.directory:
            made = tempfile.mkdtemp(prefix="python-", dir=run_directory().path)
            directory = Path(made) / target
            extract(Path(file.path), directory)
        return str(directory / rest)
    return given


def _get(builder: SparkSession.Builder, settings: Mapping[str, object]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    with _handler_of_interrupts():
        return builder.getOrCreate()


def _launch(
    settings: Mapping[str, object], master: str, *, archived: bool
) -> tuple[dict[str, str], ClassArchive | None]:
    """Start the JVM.

    Returns:
        The options that its surroundings ask for; the archive.
    """
    directories = [
        run_directory(Path(place))
        for place in os.environ.get(
            "SPARK_LOCAL_DIRS", str(settings.get("spark.local.dir", tempfile.gettempdir()))
        ).split(",")
    ]
    temporary = run_directory()
    java = find_java()
    environment = {
        "JAVA_HOME": str(java.quiet_home),
        "SPARK_LOCAL_DIRS": ",".join(str(directory.path) for directory in directories),
    }
    if master.startswith("local") and "SPARK_LOCAL_IP" not in os.environ:
        # What has no option of its own (the web interface, a local cluster) asks for this.
        environment["SPARK_LOCAL_IP"] = _LOOPBACK
    home = Path(os.environ.get("SPARK_HOME") or _find_spark_home())
    if master.startswith("local") and "SPARK_HOME" not in os.environ:
        home = _home_without_archive(temporary.path)
        environment["SPARK_HOME"] = str(home)
    archive = (
        ClassArchive.of(cache_directory() / "classes", java, home, settings) if archived else None
    )
    locks = tuple({directory.lock for directory in [temporary, *directories]})
    found = _surroundings(temporary.path, archive)
    with _environment(environment):
        try:
            _start_jvm({**found, **settings}, locks)
        except EngineError:
            if archive is None or not archive.give_up("the JVM did not start with it"):
                raise
            found = _surroundings(temporary.path, None)
            _start_jvm({**found, **settings}, locks)
    return found, archive


def _start_jvm(settings: Mapping[str, object], locks: tuple[int, ...]) -> None:
    """Start it with these options, and the descriptors of these locks."""
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        if key != _SECRET:
            conf.set(key, str(value))
    try:
        launch: Any = launch_gateway  # which has no annotations
        gateway = launch(conf, {"pass_fds": locks})
    except PySparkRuntimeError as error:
        message = (
            "Spark's JVM does not start; what it wrote before it ended stands above. Often"
            " spark.driver.memory asks for more than there is, or spark.driver.extraJavaOptions"
            " has an option that this Java does not know."
        )
        raise EngineError(message) from error
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - as SparkContext does


def _surroundings(directory: Path, archive: ClassArchive | None) -> dict[str, str]:
    """Options for the JVM's log, temporary files and classes."""
    java = [f'-Djava.io.tmpdir="{directory}"']
    if archive is not None:
        java += archive.java_options(directory)
    if not _has_log_configuration():
        log = importlib.resources.files("millstream.engines.spark") / "log4j2.properties"
        java.append(f'-Dlog4j2.configurationFile="{Path(str(log)).as_uri()}"')
    return {
        # These go before extraJavaOptions, which are the user's.
        "spark.driver.defaultJavaOptions": " ".join(java),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(socket_directory(_SOCKET_NAME)),
    }


def _home_without_archive(directory: Path) -> Path:
    """Spark's home, but for PySpark's archive: Python finds the installed files in its place.

    Of what is in an archive Python keeps no compiled files: each process that Spark starts would
    compile PySpark again, for a second.

    It is in the user's cache: the JVM only takes classes from an archive (``session.py``) if
    their files have the same names.

    Args:
        directory: where it is if there can be no cache.
    """
    installed = Path(_find_spark_home())
    archive = installed / "python" / "lib" / "pyspark.zip"
    package = Path(pyspark.__file__).parent
    if not archive.is_file() or package != installed:
        return installed  # Spark's own distribution, whose Python is that of its archive
    links = {Path("python", "lib", archive.name, "pyspark"): package}
    links |= {
        Path(path.name): path
        for path in installed.iterdir()
        if path.is_dir() and path.name != "python"
    }
    links |= {
        Path("python", "lib", path.name): path
        for path in archive.parent.iterdir()
        if path != archive
    }
    text = "\n".join(f"{name} {target}" for name, target in sorted(links.items()))
    home = cache_directory() / f"spark-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    try:
        if not home.is_dir():
            home.parent.mkdir(parents=True, exist_ok=True)
            new = _linked(links, home.parent)
            # Another process may have made it meanwhile: to rename onto that one fails.
            with contextlib.suppress(OSError):
                new.rename(home)
            shutil.rmtree(new, ignore_errors=True)
    except OSError:
        return _linked(links, directory)
    return home


def _linked(links: Mapping[Path, Path], directory: Path) -> Path:
    """A new directory with these links."""
    home = Path(tempfile.mkdtemp(prefix="spark-home-", dir=directory))
    for name, target in links.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(target)
    return home


def _has_log_configuration() -> bool:
    """Return whether the user has told Spark's JVMs how to log."""
    place = os.environ.get("SPARK_CONF_DIR") or str(Path(_find_spark_home()) / "conf")
    return any(Path(place).glob("log4j2.*"))


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a process that is started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _handler_of_interrupts() -> Iterator[None]:
    """Keep the handler of SIGINT: PySpark's fails the epochs of all jobs, also of those that go on.

    Whoever waits for a job cancels it when interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:  # a handler that is not Python's is none that PySpark has replaced
            signal.signal(signal.SIGINT, before)


def warm_up(session: SparkSession) -> threading.Thread:
    """Have the workers' daemon started while the first query still starts; the thread that waits.

    Spark starts the daemon with the first task, and the daemon imports for some seconds, on a core
    that the start of a query leaves to it.
    """

    def run() -> None:
        try:
            session.sparkContext.setJobDescription(WARM_UP)
            # As the tasks of epochs are run: workers of another kind have a daemon of their own.
            session.range(1, numPartitions=1).mapInArrow(_as_they_come, "id long").collect()
        except Exception:  # noqa: BLE001 - the job's own tasks will meet it, and tell
            _LOG.debug("the workers' daemon was not started in advance", exc_info=True)

    thread = threading.Thread(target=run, name="millstream-warm-up", daemon=True)
    thread.start()
    return thread


def _as_they_come(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _end(
    session: SparkSession, warming: threading.Thread | None, archive: ClassArchive | None
) -> None:
    """Stop the session, then the JVM, and wait: nothing is said or left after Python's end."""
    if warming is not None:  # it would tell of the end of the JVM under it
        warming.join(_END_SECONDS)
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001
    process: subprocess.Popen[bytes] = gateway.proc
    # One that is gone already has nothing to stop.
    with contextlib.suppress(Py4JError, OSError):
        if process.poll() is None:
            if archive is not None:
                archive.check(gateway.jvm)
            collection = _end_collection(gateway)
            session.stop()
            if collection is not None:
                collection.join(_END_SECONDS)
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # it ends when it reads the end of this
    with contextlib.suppress(subprocess.TimeoutExpired):
        if process.wait(_END_SECONDS) == 0 and archive is not None:
            archive.make()


def _end_collection(gateway: Any) -> threading.Thread | None:
    """Have the thread end in which py4j tells the JVM of objects that Python has released.

    It tells of them by and by, also a JVM that is about to end, and logs that as an error.
    """
    client = gateway._gateway_client  # noqa: SLF001 - PySpark offers no other way to it
    released = getattr(client, "finalizer_deque", None)  # none if PYSPARK_PIN_THREAD is false
    if released is None:
        return None
    released.append(SHUTDOWN_FINALIZER_WORKER)  # the end from which it takes
    found = (each for each in threading.enumerate() if isinstance(each, FinalizerWorker))
    return next((each for each in found if each.deque is released), None)


#: Options of the session in which the query starts.  Spark copies them into the query's own
#: session, so they are put back afterwards.
STREAMING_OPTIONS: Final = {
    # The plan of an epoch is fixed: the target subtasks are partitions and must stay so.
    "spark.sql.adaptive.enabled": "false",
    # Frames are large: a batch of them is limited by its bytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024 * 1024),
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    # An epoch without a new offset is never wanted: the planner decides.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stopTimeout": "30s",
    # Spark's default for its logs of offsets and commits starts a process for each permission and
    # each link that it checks where Hadoop's native library is missing, as on most machines: some
    # 40 ms a file, two files an epoch.  What they are needed for is in the manifests as well.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}


def get_session(configuration: Configuration) -> SparkSession:
    """The active session, or a new one on ``local[*]`` (or the configured master).

    Workers run the Python of the driver unless ``python.executable`` (of a new session) or
    ``PYSPARK_PYTHON`` says otherwise.

    Raises:
        ConfigurationError: there is no Java.
        EngineError: Spark's JVM does not start, or is one that only Spark Connect leads to.
    """
    if is_remote():
        message = (
            "this program uses Spark Connect, whose sessions are in another process: Spark cannot"
            " call the program for offsets and micro-batches from there, nor send it its task"
            " slots and"
            " jobs. Use a session in this process: without SPARK_REMOTE, spark.remote and"
            " spark.api.mode: connect, by spark-submit or with millstream.spark.master"
        )
        raise EngineError(message)
    # At INFO it logs each call between the JVM and Python: in the middle of a program's rows.
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        bridge.setLevel(logging.WARNING)
    return SparkSession.getActiveSession() or start_session(configuration)


@contextlib.contextmanager
def streaming_options(session: SparkSession) -> Iterator[None]:
    """Set ``STREAMING_OPTIONS`` for the time in which a query is started."""
    current = session.conf.getAll
    before = {key: current.get(key) for key in STREAMING_OPTIONS}
    try:
        for key, value in STREAMING_OPTIONS.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, previous in before.items():
            if previous is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, previous)
