"""An archive of the classes that Spark's JVM loads, which halves the start of the next session.

What it is: class-data sharing, as Java has it.  The JVM of a session without an archive writes down
which classes it loads; behind the end of the session a process of low priority makes the archive
from that list (``engines/spark/make_class_archive.py``), in the user's cache directory; and the
JVMs of later sessions map it instead of reading, checking and linking some twenty thousand classes.

The key of an archive is all that it depends on: the Java, the files of Spark, the options and what
may change the class path.  A JVM goes on without an archive that does not fit.  Whatever goes wrong
here is said at debug level and costs no job more than its faster start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from millstream.engines.spark import make_class_archive

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

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
    """The archive for the JVM of one session.

    Args:
        directory: of all archives, in the user's cache.
        key: see ``key_of``.
        java: the executable that the session's JVM runs.
    """

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
        """The archive for a session; None if the user has told Java otherwise.

        Args:
            directory: of all archives; need not exist.
            java: that runs the session.
            home: Spark's home of the session, in whose ``jars`` its classes are.
            settings: of the session.
        """
        told = [os.environ.get(name, "") for name in _VARIABLES]
        told += [str(settings.get(name, "")) for name in _SETTINGS]
        if any(word in text for text in told for word in _OF_THE_USER):
            return None
        try:
            return cls(directory, key_of(java.executable, home, told), java.executable)
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

    def look(self, jvm: Any) -> None:
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
        """Behind the end of the JVM: start the process that makes the archive."""
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
            # Nobody waits for it: it goes on when this process has ended.
            process.returncode = 0


def key_of(java: Path, home: Path, told: Iterable[str]) -> str:
    """What an archive depends on, as a part of its name.

    Args:
        java: the executable.
        home: Spark's home.
        told: options and paths.
    """
    digest = hashlib.sha256()
    files = [java, java.resolve().parent.parent / "lib" / "modules"]
    files += sorted((home / "jars").iterdir())
    for path in files:
        found = path.stat()
        digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    for text in (*told, str(home)):
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()[:_KEY]
