"""Logging: formats with job, operator, subtask and checkpoint, on the driver and in workers.

Nothing is computed unless a message is logged.  A filter on each handler adds the fields to a
record; the operator is the one whose call the process notes at that moment
(``runtime/last_given.py``).

Workers that are forked from the driver inherit its handlers.  Others, those of Spark, get the
format, level and configuration of the driver from the job graph.
"""

from __future__ import annotations

import contextlib
import glob
import io
import json
import logging
import logging.config
import os
import re
import socket
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options
from millstream.configuration.redaction import redacted, redacted_text
from millstream.directories import PRIVATE_FILE, make_private, run_directory
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.configuration.configuration import Configuration


#: The format of lines of ``millstream run``.
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: They log each request or call at INFO, in the middle of what a program logs.
_NOISY: Final = ("py4j", "pyspark", "urllib3", "botocore", "asyncio", "uvicorn", "opentelemetry")
#: Bytes of a file of ``KeptLog``, of which there are two.
_LONGEST_LOG: Final = 4 << 20
DRIVER_LOG: Final = "driver.log"
WORKERS_LOG: Final = "workers.log"
_INI: Final = (".ini", ".cfg", ".conf")
#: What handlers, and logrotate, add to the name of a file that is full: a number or a time.
_RENAMED: Final = re.compile(r"\.\d[\d_:.-]*")
#: Attributes of a record that are not fields of the program's ``extra``.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@dataclass(slots=True)
class TaskPosition:
    """The checkpoint that what a task processes now belongs to; None before it is known."""

    checkpoint_id: int | None = None


@dataclass(frozen=True, slots=True)
class LoggingOperator:
    """The operator that a process runs while it logs."""

    name: str
    uid: str
    subtask: int
    parallelism: int
    checkpoint_id: int | None


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The logging of a job, as the driver sends it to workers."""

    job_id: str
    job_name: str
    #: Host and process id of the driver.
    driver: tuple[str, int]
    #: Of the root logger; None: the program has configured no logging.
    level: int | None
    #: "text" or "json".
    format: str
    #: The content of the configuration file: text of INI, or a dictionary.
    file: str | dict[str, Any]
    #: Where the driver keeps the log of the job, for the REST API; empty: it does not.
    directory: str = ""

    @classmethod
    def of(cls, configuration: Configuration, job_id: str, job_name: str) -> LogSettings:
        """Return the logging of this process, for the workers of a job.

        Raises:
            ConfigurationError: the configuration file cannot be read.
        """
        root = logging.getLogger()
        return cls(
            job_id,
            job_name,
            _this_process(),
            root.level if _is_configured() else None,
            configuration.get(options.LOGGING_FORMAT),
            _read(configuration),
            _kept_directory(configuration),
        )


def _kept_directory(configuration: Configuration) -> str:
    """Return where the log of a job is kept: it is if there is a REST API, which serves it."""
    if not any(
        configuration.contains(each) for each in (options.REST_PORT, options.REST_BIND_PORT)
    ):
        return ""
    return str(log_directory())


def log_directory() -> Path:
    """Return where the driver of this process keeps the logs of its jobs.

    It is removed with the process: whoever wants the log for longer has it in a file.
    """
    return run_directory().path / "logs"


class _Fields(threading.local):
    """What a thread of the driver logs about."""

    job_id = ""
    job_name = ""
    checkpoint_id: int | None = None


_fields: Final = _Fields()
#: The job that was begun last in this process: of threads that have not set one.
_last_job: tuple[str, str] = ("", "")
_operator: Callable[[], LoggingOperator | None] | None = None
#: The settings that this process was configured with, if it was.
_configured: object = None


def begin_job(job_id: str, job_name: str) -> None:
    """Note that this thread works for a job."""
    global _last_job  # noqa: PLW0603 - of the process
    _fields.job_id, _fields.job_name = _last_job = job_id, job_name


@contextlib.contextmanager
def at_checkpoint(checkpoint_id: int) -> Iterator[None]:
    """Note the checkpoint that this thread of the driver works at."""
    before, _fields.checkpoint_id = _fields.checkpoint_id, checkpoint_id
    try:
        yield
    finally:
        _fields.checkpoint_id = before


class FieldsFilter(logging.Filter):
    """Adds the fields of job, operator and checkpoint to records, and masks secrets in messages.

    A field that the program gives a record of its own (``extra``) stays as it is.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; True."""
        mine = record.threadName == "MainThread" or not record.name.startswith("millstream")
        operator = _operator() if mine and _operator is not None else None
        checkpoint = _fields.checkpoint_id if operator is None else operator.checkpoint_id
        found = {
            "job_id": _fields.job_id or _last_job[0],
            "job_name": _fields.job_name or _last_job[1],
            "operator": "" if operator is None else operator.name,
            "operator_uid": "" if operator is None else operator.uid,
            "subtask": "" if operator is None else operator.subtask,
            "parallelism": "" if operator is None else operator.parallelism,
            "checkpoint_id": "" if checkpoint is None else checkpoint,
        }
        for name, value in found.items():
            record.__dict__.setdefault(name, value)
        _mask(record)
        return True


def _mask(record: logging.LogRecord) -> None:
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - logging itself reports arguments that do not fit
        return
    shown = redacted_text(message)
    if shown != message:
        record.msg, record.args = shown, ()


class KeptLog(logging.Handler):
    """Keeps the last records in files of a directory, for the REST API.

    Records of the driver are in ``driver.log``, those of an operator in the file of its slot, and
    others of workers in ``workers.log``.  Several processes may write to a file.  One that is full
    gets another name, in the place of the one before.

    Args:
        directory: of the files; is made.
        driver: process id of the driver.
        limit: bytes of a file.
    """

    def __init__(self, directory: Path, driver: int, limit: int = _LONGEST_LOG) -> None:
        super().__init__()
        self.directory, self._driver, self._limit = directory, driver, limit
        make_private(directory)
        self._files: dict[str, int] = {}
        self.setFormatter(TextFormatter())
        self.addFilter(FieldsFilter())
        if os.getpid() == driver:
            self._open(DRIVER_LOG)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            line = f"{self.format(record)}\n".encode(errors="replace")
            os.write(self._open(self._file_of(record)), line)
        except Exception:  # noqa: BLE001 - as other handlers: a full disk ends no job
            self.handleError(record)
        # Because of this handler, logging does not use the one of programs that configure none.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not _is_handled(record.name):
            last.handle(record)

    def _file_of(self, record: logging.LogRecord) -> str:
        if os.getpid() == self._driver:
            return DRIVER_LOG
        subtask = getattr(record, "subtask", "")
        return WORKERS_LOG if subtask == "" else slot_log(f"slot-{subtask}")

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.popitem()[1])
        super().close()

    def _open(self, name: str) -> int:
        """Return a file that has room, open for appending."""
        path = self.directory / name
        known = self._files.get(name)
        if known is not None:
            found = os.fstat(known)
            if found.st_size < self._limit:
                return known
            # Another process may have renamed it already.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == found.st_ino:
                    path.replace(path.with_suffix(".log.1"))
            os.close(self._files.pop(name))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._files[name] = os.open(path, flags, PRIVATE_FILE)
        return self._files[name]


def slot_log(slot: str) -> str:
    """Return the name of the file with the log of a slot."""
    return f"{slot}.log"


def keep_log(settings: LogSettings | None) -> None:
    """Keep the log of a job in this process, which is its driver or a worker on its machine."""
    if settings is None or not settings.directory or settings.driver[0] != socket.gethostname():
        return
    directory, root = Path(settings.directory), logging.getLogger()
    if not any(isinstance(each, KeptLog) and each.directory == directory for each in root.handlers):
        root.addHandler(KeptLog(directory, settings.driver[1]))


def end_log() -> None:
    """Keep no log any more in this process."""
    root = logging.getLogger()
    for each in [each for each in root.handlers if isinstance(each, KeptLog)]:
        root.removeHandler(each)
        each.close()


def log_files() -> dict[str, Path]:
    """Return the files with logs of this process and of its workers, by name; its own is first.

    They are those of ``KeptLog``, and those that the program's handlers write, with the files that
    these have renamed.
    """
    kept = sorted(log_directory().glob("*.log*"), key=lambda each: each.name != DRIVER_LOG)
    # A link is nothing that a handler has written; the program may log to one.
    found = {each.name: each for each in kept if not each.is_symlink()}
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            if isinstance(handler, logging.FileHandler):
                path = Path(handler.baseFilename)
                for each in sorted(path.parent.glob(f"{glob.escape(path.name)}*")):
                    is_renamed = _RENAMED.fullmatch(each.name, len(path.name)) is not None
                    if each == path or (is_renamed and not each.is_symlink()):
                        found.setdefault(each.name, each)
    return {name: path for name, path in found.items() if path.is_file()}


def _is_handled(name: str) -> bool:
    """Return whether handlers of the program get the records of a logger."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(each, KeptLog) for each in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _is_configured() -> bool:
    """Return whether the program has configured logging."""
    return _is_handled("root")


class TextFormatter(logging.Formatter):
    """A line with time, level, logger, and operator and subtask if the record is of one."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of logging
        """Return the line, with the operator before the message."""
        operator = getattr(record, "operator", "")
        if operator:
            record.message = f"[{operator} {_position(record)}] {record.message}"
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - of logging
        """Return the traceback with secrets masked."""
        return redacted_text(super().formatException(ei))


def _position(record: logging.LogRecord) -> str:
    """The subtask as Flink's logs have it: (1/2)."""
    found = vars(record)
    return f"({found['subtask'] + 1}/{found['parallelism']})"


class JsonFormatter(logging.Formatter):
    """A JSON object in a line: ``time``, ``level``, ``logger``, ``message`` and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object; fields without value are left out."""
        moment = datetime.fromtimestamp(record.created, UTC)
        value: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
        }
        given = {key: each for key, each in vars(record).items() if key not in _STANDARD}
        value |= {
            key: redacted(key, each) if isinstance(each, str) else each
            for key, each in given.items()
            if each != "" and key not in value
        }
        if record.exc_info:
            value["exception"] = redacted_text(self.formatException(record.exc_info))
        if record.stack_info:
            value["stack"] = redacted_text(self.formatStack(record.stack_info))
        return json.dumps(value, ensure_ascii=False, default=str)


def configure_driver(configuration: Configuration, *, command: bool = False) -> None:
    """Configure logging as the options say; without any, leave it to the program.

    Args:
        configuration: of the job or of the command line.
        command: ``millstream run`` logs also where no option asks for it.

    Raises:
        ConfigurationError: the configuration file cannot be read, or makes no sense.
    """
    global _configured  # noqa: PLW0603 - of the process
    chosen = (options.LOGGING_FORMAT, options.LOGGING_LEVEL, options.LOGGING_CONFIG_FILE)
    settings = tuple(configuration.get(option) for option in chosen)
    asked = any(configuration.contains(option) for option in chosen)
    if (asked or command) and settings != _configured:
        _configured = settings
        level = logging.getLevelNamesMapping()[configuration.get(options.LOGGING_LEVEL).upper()]
        _configure(_read(configuration), level, configuration.get(options.LOGGING_FORMAT))
    _add_fields()


def configure_worker(settings: LogSettings, operator: Callable[[], LoggingOperator | None]) -> None:
    """Configure logging in a process that runs tasks, unless it was before or is the driver.

    Args:
        settings: of the job.
        operator: returns the operator that the process runs.
    """
    global _operator, _configured  # noqa: PLW0603 - of the process
    if settings.driver == _this_process():
        return
    begin_job(settings.job_id, settings.job_name)
    _operator = operator
    if _configured == settings:
        return
    _configured = settings
    if settings.level is not None and not _is_configured():
        _configure(settings.file, settings.level, settings.format)
    keep_log(settings)
    _add_fields()


def _configure(file: str | dict[str, Any], level: int, form: str) -> None:
    if not file:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        root = logging.getLogger()
        for each in [each for each in root.handlers if _is_ours(each)]:
            root.removeHandler(each)
        root.addHandler(handler)
        root.setLevel(level)
        logging.getLogger("millstream").setLevel(level)
        for name in _NOISY:
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(max(level, logging.WARNING))
        return
    try:
        if isinstance(file, str):
            logging.config.fileConfig(io.StringIO(file), disable_existing_loggers=False)
        else:
            logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **file})
    except (ValueError, TypeError, KeyError, AttributeError, ImportError, OSError) as error:
        cause = error.__cause__ or error
        message = f"{options.LOGGING_CONFIG_FILE.key}: logging cannot be configured: {cause}"
        raise ConfigurationError(message) from error


def _is_ours(handler: logging.Handler) -> bool:
    is_kept = isinstance(handler, KeptLog)
    return isinstance(handler.formatter, TextFormatter | JsonFormatter) and not is_kept


def _read(configuration: Configuration) -> str | dict[str, Any]:
    """Return the configuration file; empty if there is none."""
    name = configuration.get(options.LOGGING_CONFIG_FILE)
    if not name:
        return ""
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        message = f"{options.LOGGING_CONFIG_FILE.key}: {name} cannot be read: {error}"
        raise ConfigurationError(message) from error
    if path.suffix in _INI:
        return text
    import yaml

    try:
        value = yaml.safe_load(text)  # JSON is YAML
    except yaml.YAMLError as error:
        message = f"{options.LOGGING_CONFIG_FILE.key}: {name} is not YAML or JSON: {error}"
        raise ConfigurationError(message) from error
    if not isinstance(value, dict):
        message = (
            f"{options.LOGGING_CONFIG_FILE.key}: {name} must contain a dictionary for"
            f" logging.config.dictConfig, or end in {', '.join(_INI)}"
        )
        raise ConfigurationError(message)
    return value


def _add_fields() -> None:
    """Add the filter to all handlers that there are."""
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    for each in loggers:
        for handler in each.handlers if isinstance(each, logging.Logger) else ():
            if not any(isinstance(known, FieldsFilter) for known in handler.filters):
                handler.addFilter(FieldsFilter())


def _this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()
