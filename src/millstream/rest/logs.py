"""Endpoints of logs and standard output, of the driver and of slots."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration.redaction import redacted_text
from millstream.logs import DRIVER_LOG, slot_log
from millstream.rest.app import Call, Endpoint, Text
from millstream.rest.security import Refused
from millstream.rest.slots import find_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.rest.view import JobView

    Files = Mapping[str, Path]
    #: The files that a request is about.
    Choose = Callable[[Call], Files]

#: Bytes of the end of a file that are sent.
_MOST: Final = 8 << 20
#: About how many of them are masked at a time: other threads of the driver wait for that long.
_AT_ONCE: Final = 1 << 16
#: The standard output of this process.
_STDOUT: Final = Path("/proc/self/fd/1")


def _files(jobs: Iterable[JobView]) -> dict[str, Path]:
    return {name: path for job in jobs for name, path in job.log_files().items()}


def _chosen(call: Call) -> list[JobView]:
    return [call.job] if "jobid" in call.path else call.jobs.all()


def _of_driver(call: Call) -> Files:
    slots = tuple(f"slot-{number}." for number in range(_widest(call)))
    files = _files(_chosen(call))
    return {name: path for name, path in files.items() if not name.startswith(slots)}


def _widest(call: Call) -> int:
    return max((each.parallelism for job in _chosen(call) for each in job.vertices), default=0)


def _of_slot(call: Call) -> Files:
    name = slot_log(find_slot(call))
    files = _files(_chosen(call))
    return {each: path for each, path in files.items() if each.startswith(name)}


def _list(choose: Choose) -> Callable[[Call], Any]:
    def respond(call: Call) -> dict[str, Any]:
        found = []
        for name, path in choose(call).items():
            try:
                facts = path.stat()
            except OSError:
                continue  # it was renamed, or deleted
            modified = int(facts.st_mtime * 1000)
            found.append({"name": name, "size": facts.st_size, "mtime": modified})
        return {"logs": found}

    return respond


def _read(path: Path) -> str:
    """Return a file without secrets; of a long one the end, from the beginning of a line.

    Raises:
        Refused: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - _MOST)
            file.seek(start)
            content = file.read(_MOST)
    except OSError as error:
        raise Refused(404, f"{path.name} cannot be read: {error.strerror}") from None
    if start:
        content = content.partition(b"\n")[2]
    lines = io.BytesIO(content)
    parts = iter(lambda: b"".join(lines.readlines(_AT_ONCE)), b"")
    return "".join(redacted_text(part.decode(errors="replace")) for part in parts)


def _file(choose: Choose) -> Callable[[Call], Any]:
    """Make the response of a file of the list: no other name is looked for on the disk."""

    def respond(call: Call) -> Text:
        wanted = call.path["file"]
        path = choose(call).get(wanted)
        if path is None:
            raise Refused(404, f"There is no log file {wanted[:100]!r}")
        return Text(_read(path))

    return respond


def _log(call: Call) -> Text:
    """Return the driver's own log."""
    path = _of_driver(call).get(DRIVER_LOG)
    return Text("" if path is None else _read(path))


def _log_of_slot(call: Call) -> Text:
    path = _of_slot(call).get(slot_log(find_slot(call)))
    return Text("" if path is None else _read(path))


def _stdout(call: Call) -> Text:
    """Return the standard output of the driver if that is a file."""
    try:
        is_file = bool(_files(_chosen(call))) and stat.S_ISREG(_STDOUT.stat().st_mode)
    except OSError:
        is_file = False
    if not is_file:
        return Text(
            "The standard output of the driver is not a file, so that nothing keeps it: start the"
            " driver with > FILE, and it is shown here."
        )
    return Text(_read(_STDOUT))


def _stdout_of_slot(call: Call) -> Text:
    slot = find_slot(call)
    return Text(
        f"{slot} has no file for its standard output. On the local engine it is that of the driver;"
        " on Spark it is in the log of the executor."
    )


def _url(page: str) -> Callable[[Call], Any]:
    return lambda call: {"url": f"#/jobs/{call.job.job_id}/logs/{page.format(**call.path)}"}


def _endpoints(prefix: str) -> Iterable[Endpoint]:
    driver, slot = f"{prefix}/jobmanager", f"{prefix}/taskmanagers/{{taskmanagerid}}"
    is_flinks = not prefix
    for path, respond, summary in (
        (f"{driver}/logs", _list(_of_driver), "the log files of the driver"),
        (f"{driver}/logs/{{file}}", _file(_of_driver), "the end of one of them"),
        (f"{driver}/log", _log, "the log of the driver"),
        (f"{driver}/stdout", _stdout, "the standard output of the driver, if it is a file"),
        (f"{slot}/logs", _list(_of_slot), "the log files of a slot"),
        (f"{slot}/logs/{{file}}", _file(_of_slot), "the end of one of them"),
        (f"{slot}/log", _log_of_slot, "the log of a slot"),
        (f"{slot}/stdout", _stdout_of_slot, "where the standard output of a slot is"),
    ):
        yield Endpoint("GET", path, respond, summary, is_flinks=is_flinks)


_JOB: Final = "/jobs/{jobid}"
ENDPOINTS: Final = (
    *_endpoints(""),
    *_endpoints(_JOB),
    Endpoint("GET", f"{_JOB}/jobmanager/log-url", _url("driver"), "the page of the driver's log"),
    Endpoint(
        "GET",
        f"{_JOB}/taskmanagers/{{taskmanagerid}}/log-url",
        _url("{taskmanagerid}"),
        "the page of a slot's log",
    ),
)
