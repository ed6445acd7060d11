"""Commands about running jobs: list, status, stop, cancel, metrics, top and logs."""

from __future__ import annotations

import fnmatch
import sys
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.inspect import list_checkpoints
from millstream.cli.job_figures import (
    checkpoint_words,
    format_duration,
    format_size,
    load_figures,
)
from millstream.cli.job_targets import ENDED, Access, client_of, find_job
from millstream.cli.rest_client import RestClient
from millstream.cli.savepoint_command import SavepointOptions, request_savepoint
from millstream.cli.tables import Table
from millstream.errors import JobError
from millstream.execution.announcements import announced_jobs
from millstream.metrics.progress import format_moment

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from millstream.cli.job_targets import JobTarget

_SECOND: Final = 1000
#: Seconds between two looks for what a job has been asked for, or for new lines of a log.
_LOOK: Final = 0.5
_MANY: Final = 100


def run_job_command(options: argparse.Namespace) -> int:
    """Run one of the commands; returns the exit code.

    Raises:
        JobError: there is no such job, it cannot be reached, or it refuses.
        CheckpointError: what is given is not a checkpoint directory.
    """
    access = Access(options.token_file, getattr(options, "hmac_key_file", ""))
    if options.command == "list":
        return list_jobs(options.job, access)
    target = find_job(options.job, access)
    if options.command == "status":
        return show_status(target)
    if options.command in {"savepoint", "stop"}:
        return take_savepoint(target, _savepoint_options(options))
    if options.command == "cancel":
        return cancel(target, options.timeout)
    return _ask_driver(target.require_api(options.command), target, options)


def _ask_driver(api: RestClient, target: JobTarget, options: argparse.Namespace) -> int:
    if options.command == "metrics":
        return show_metrics(api, target, options.pattern)
    if options.command == "logs":
        return show_logs(api, target, options.slot, follows=options.follow)
    from millstream.cli.top_command import show_top

    return show_top(api, target.job_id, options.interval, once=options.once)


def list_jobs(address: str | None, access: Access) -> int:
    """Print the jobs of this machine, or those at an address."""
    found = list(_listed(address, access))
    if not found:
        print("No job of yours runs on this machine.")
        return 0
    table = Table(
        *((title, False) for title in ("Job", "Id", "Status", "Started", "REST API", "Checkpoints"))
    )
    for each in found:
        table.add(*each)
    table.print()
    return 0


def _listed(address: str | None, access: Access) -> Iterator[tuple[str, ...]]:
    if address is not None:
        api = RestClient(address, access.token)
        for job in api.get("jobs/overview")["jobs"]:
            yield _line(job, api.address, "")
        return
    for known in announced_jobs():
        started = format_moment(known.started)
        where = known.checkpoints or "(temporary)"
        own = client_of(known, access)
        status = "RUNNING" if own is None else _status(own, known.job_id)
        yield known.name, known.job_id, status, started, known.address or "-", where


def _line(job: dict[str, Any], address: str, where: str) -> tuple[str, ...]:
    started = format_moment(job["start-time"])
    return job["name"], job["jid"], job["state"], started, address, where


def _status(api: RestClient, job_id: str) -> str:
    try:
        return str(api.get(f"jobs/{job_id}")["state"])
    except JobError:
        # Others shall be listed, too.
        return "no answer"


def show_status(target: JobTarget) -> int:
    """Print how a job is; the exit code is 1 if it has failed."""
    if target.api is None:
        _print_stored(target)
        return 0
    figures = load_figures(target.api, target.job_id)
    lines = [
        ("Job", f"{figures.name} ({figures.job_id})"),
        ("Status", f"{figures.status} for {format_duration(figures.duration)}"),
        ("REST API", target.api.address),
        ("Checkpoint", checkpoint_words(figures)),
        ("Restarts", "" if figures.restarts is None else str(figures.restarts)),
        ("Failure", figures.failure),
    ]
    _print_facts(lines)
    return int(figures.status == "FAILED")


def _print_facts(lines: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in lines) + 2
    for name, value in lines:
        if value:
            print(f"{name:<{width}}{value}")


def _print_stored(target: JobTarget) -> None:
    storage = target.storage
    if storage is None:
        print(f"Job {target.name!r} runs, without a REST API and with temporary checkpoints.")
        return
    found = list_checkpoints(storage)
    running = any(job.job_id == target.job_id for job in announced_jobs())
    last = found.checkpoints[-1] if found.checkpoints else None
    status = "does not run on this machine"
    if running:
        status = "runs on this machine, without a REST API"
    elif last is not None and last.final:
        status = "FINISHED"
    lines = [
        ("Job", f"{target.name} ({target.job_id})"),
        ("Status", status),
        ("Checkpoints", storage.location),
        ("Last run", f"number {found.runs}, {found.owner}" if found.runs else "none"),
    ]
    if last is not None:
        size, took = format_size(last.state_size), format_duration(last.duration)
        age = format_duration(time.time() * _SECOND - last.published)
        lines.append(("Checkpoint", f"{last.epoch}, {age} ago, took {took}, {size} of state"))
    if found.pending is not None:
        lines.append(("Pending", f"output of checkpoint {found.pending.epoch} is not committed"))
    _print_facts(lines)


def _savepoint_options(options: argparse.Namespace) -> SavepointOptions:
    stops = options.command == "stop"
    return SavepointOptions(
        options.directory,
        stop=stops or options.stop or options.drain,
        drain=options.drain,
        timeout=options.timeout,
        form=options.form,
    )


def take_savepoint(target: JobTarget, options: SavepointOptions) -> int:
    """Have a job take a savepoint, or stop with one, and print where it is."""
    if target.api is None and target.storage is not None:
        print(request_savepoint(target.storage, options))
        return 0
    api, path = target.require_api("savepoint"), f"jobs/{target.job_id}"
    directory = options.absolute_directory
    body: dict[str, Any] = {"formatType": options.form.upper()}
    if options.stop:
        body["drain"] = options.drain
        named = {"targetDirectory": directory}
    else:
        named = {"target-directory": directory}
    body |= named if directory is not None else {}
    triggered = api.post(f"{path}/{'stop' if options.stop else 'savepoints'}", body)
    print(_location(api, f"{path}/savepoints/{triggered['request-id']}", options.timeout))
    return 0


def _location(api: RestClient, path: str, timeout: float) -> str:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = api.get(path)
        if found["status"]["id"] == "COMPLETED":
            cause = found["operation"].get("failure-cause")
            if cause:
                raise JobError(cause.get("stack-trace") or cause["class"])
            return str(found["operation"]["location"])
        time.sleep(_LOOK)
    message = f"no answer within {timeout:g} s; what was begun may still complete"
    raise JobError(message)


def cancel(target: JobTarget, timeout: float) -> int:
    """Cancel a job, and wait until it has ended."""
    if target.api is None:
        _cancel_by_request(target, timeout)
    else:
        target.api.patch(f"jobs/{target.job_id}?mode=cancel")
        _await_end(target.api, target.job_id, timeout)
    print(f"cancelled job {target.name!r}")
    return 0


def _cancel_by_request(target: JobTarget, timeout: float) -> None:
    if target.storage is None:
        target.require_api("cancel")
        return
    request_savepoint(target.storage, SavepointOptions(None, cancel=True, timeout=timeout))


def _await_end(api: RestClient, job_id: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            if api.get(f"jobs/{job_id}")["state"] in ENDED:
                return
        except JobError:
            return  # the API has ended with the job
        time.sleep(_LOOK)
    message = (
        f"the job has not ended within {timeout:g} s; it has been asked to, and is still ending"
    )
    raise JobError(message)


def show_metrics(api: RestClient, target: JobTarget, pattern: str) -> int:
    """Print metrics whose names match a pattern."""
    table = Table(("Metric", False), ("Value", True))
    count = 0
    for name, value in _metrics(api, f"jobs/{target.job_id}"):
        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*.{pattern}"):
            table.add(name, value)
            count += 1
    if not count:
        message = f"job {target.name!r} has no metric that matches {pattern!r}"
        raise JobError(message)
    table.print()
    return 0


def _metrics(api: RestClient, path: str) -> Iterator[tuple[str, str]]:
    """Yield metrics of the job, then of its tasks: "task.subtask.metric"."""
    yield from _values(api, f"{path}/metrics")
    for vertex in api.get(path)["vertices"]:
        for name, value in _values(api, f"{path}/vertices/{vertex['id']}/metrics"):
            yield f"{vertex['name']}.{name}", value


def _values(api: RestClient, path: str) -> Iterator[tuple[str, str]]:
    ids = [metric["id"] for metric in api.get(path, [])]
    # A query has at most some thousand characters.
    for start in range(0, len(ids), _MANY):
        query = ",".join(urllib.parse.quote(each, safe="") for each in ids[start : start + _MANY])
        for metric in api.get(f"{path}?get={query}", []):
            yield metric["id"], metric["value"]


def show_logs(api: RestClient, target: JobTarget, slot: str | None, *, follows: bool) -> int:
    """Print the log of the driver, or of a slot; with ``follows``, what is added to it, too."""
    owner = "jobmanager" if slot is None else f"taskmanagers/{urllib.parse.quote(slot, safe='')}"
    path = f"jobs/{target.job_id}/{owner}/logs"
    files = api.get(path, {"logs": []})["logs"]
    if not files:
        whose = "the driver" if slot is None else f"slot {slot!r}"
        message = f"{whose} of job {target.name!r} writes no log file"
        raise JobError(message)
    name = urllib.parse.quote(files[0]["name"], safe="")
    shown = ""
    while True:
        content = api.text(f"{path}/{name}")
        # One that is shorter was rotated.
        sys.stdout.write(content.removeprefix(shown))
        sys.stdout.flush()
        shown = content
        if not follows:
            return 0
        time.sleep(_LOOK)
