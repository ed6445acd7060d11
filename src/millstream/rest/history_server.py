"""The history server: running jobs of this user and machine, and jobs of checkpoint directories.

Running jobs are asked through their own REST API.  Of the others the archive is shown, or what the
checkpoints tell where there is none.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.lease import newest_term
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.configuration.configuration import Configuration
from millstream.errors import CheckpointError, MillstreamError
from millstream.metrics.job_history import JobHistory
from millstream.rest import overview
from millstream.rest.app import Endpoint, Text
from millstream.rest.archive import Archive, archive_of, read_archive
from millstream.rest.security import Refused
from millstream.rest.view import InputView, JobView, OperatorView, VertexView, vertex_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.rest.app import Call

#: Seconds for which a directory is not read again: each reading may cost requests.
_FRESH: Final = 5.0
_STATES: Final = {"STOPPED": "FINISHED", "DISCARDED": "FINISHED", "LEFT": "SUSPENDED"}
_ENDED: Final = ("FINISHED", "CANCELED", "FAILED")


class DirectoryView(JobView):
    """A job as its checkpoint directory shows it: operators, checkpoints and how it ended.

    Args:
        storage: the checkpoint directory.

    Raises:
        CheckpointError: it is not the directory of a job, or cannot be read.
    """

    def __init__(self, storage: CheckpointStorage) -> None:
        identity = JobIdentity.load(storage)
        if identity is None:
            message = f"{storage.location} is not the checkpoint directory of a job"
            raise CheckpointError(message)
        term = newest_term(storage)
        ended = "" if term is None else term.ended
        self._status = _STATES.get(ended, ended) or "SUSPENDED"
        self.job_id, self.name, self.is_batch = identity.job_id, identity.job_name, False
        self.configuration = Configuration({"execution.checkpointing.dir": storage.location})
        manifests = ManifestLog(storage).manifests()
        self._vertices = _vertices_of(manifests[-1]) if manifests else ()
        clock = iter(_times(manifests))
        self.history = JobHistory(max(len(manifests), 1), milliseconds=lambda: next(clock))
        for each in manifests:
            self.history.checkpoint_completed(each, [])
        self.history.moved(self._status)

    @property
    def status(self) -> str:
        return self._status

    @property
    def vertices(self) -> tuple[VertexView, ...]:
        return self._vertices


def _times(manifests: Sequence[Manifest]) -> list[int]:
    """When the job has started, as far as that is known, and its last sign of life."""
    if not manifests:
        return [0, 0]
    return [manifests[0].started, manifests[-1].published]


def _vertices_of(manifest: Manifest) -> tuple[VertexView, ...]:
    """One vertex per operator: how they were chained is not in a manifest."""
    return tuple(
        VertexView(
            id=vertex_id(uid),
            uid=uid,
            name=record.name,
            parallelism=record.parallelism,
            max_parallelism=record.max_parallelism,
            operators=(OperatorView(uid, record.name, record.kind, record.location),),
            inputs=tuple(
                InputView(vertex_id(each), "", "")
                for each in record.inputs
                if each in manifest.program
            ),
        )
        for uid, record in manifest.program.items()
    )


class HistoryServer:
    """The jobs that ``millstream ui`` shows.

    Args:
        storages: checkpoint directories.
        running: returns for each running job its id and what asks its REST API: a path, and
            whether the response is text.
    """

    def __init__(
        self,
        storages: Sequence[CheckpointStorage],
        running: Callable[[], Mapping[str, Callable[[str, bool], Any]]],
    ) -> None:
        self._storages = storages
        self._running = running
        self._lock = threading.Lock()
        #: Directory -> when it was read, and what was found.
        self._read: dict[str, tuple[float, Archive]] = {}

    def read(self) -> None:
        """Read the directories, for the requests of the next seconds as well.

        Raises:
            CheckpointError: one is not the directory of a job, or cannot be read.
        """
        for storage in self._storages:
            self._archive(storage)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the routes."""
        config = next(each for each in overview.ENDPOINTS if each.path == "/config")

        def configured(call: Call) -> dict[str, Any]:
            found: dict[str, Any] = config.respond(call)
            return {**found, "features": {**found["features"], "web-history": True}}

        return (
            Endpoint("GET", "/config", configured, config.summary),
            Endpoint("GET", "/overview", lambda _: self._overview(), "how many jobs there are"),
            Endpoint("GET", "/jobs/overview", lambda _: {"jobs": self._jobs()}, "the jobs"),
            Endpoint("GET", "/jobs/{jobid}", self._of_job, "a job"),
            Endpoint("GET", "/jobs/{jobid}/{rest:path}", self._of_job, "details of a job"),
            Endpoint("GET", "/taskmanagers", lambda _: {"taskmanagers": []}, "no slots"),
        )

    def _overview(self) -> dict[str, Any]:
        states = [each["state"] for each in self._jobs()]
        return {
            "taskmanagers": 0,
            "slots-total": 0,
            "slots-available": 0,
            "jobs-running": sum(each not in _ENDED for each in states),
            "jobs-finished": states.count("FINISHED"),
            "jobs-cancelled": states.count("CANCELED"),
            "jobs-failed": states.count("FAILED"),
        }

    def _jobs(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for job_id, ask in self._running().items():
            try:
                jobs: list[dict[str, Any]] = ask("jobs/overview", False)["jobs"]  # noqa: FBT003
            except MillstreamError:
                continue  # it has ended meanwhile
            found |= {each["jid"]: each for each in jobs if each["jid"] == job_id}
        for storage in self._storages:
            for each in self._archive(storage)["/jobs/overview"]["jobs"]:
                found.setdefault(each["jid"], each)
        return list(found.values())

    def _archive(self, storage: CheckpointStorage) -> Archive:
        with self._lock:
            read, found = self._read.get(storage.location, (0.0, {}))
            if not found or time.monotonic() - read > _FRESH:
                found = read_archive(storage) or archive_of(DirectoryView(storage))
                self._read[storage.location] = (time.monotonic(), found)
            return found

    def _of_job(self, call: Call) -> Any:
        job_id, rest = call.path["jobid"], call.path.get("rest", "")
        path = f"jobs/{job_id}/{rest}".rstrip("/")
        ask = self._running().get(job_id)
        if ask is not None:
            is_text = rest.endswith(("/log", "/stdout")) or "/logs/" in rest
            query = f"?{urlencode(call.query)}" if call.query else ""
            # The driver reads the path as it was checked here: it may cancel the job by a GET.
            answer = ask(quote(path) + query, is_text)
            return Text(answer) if is_text else answer
        for storage in self._storages:
            archive = self._archive(storage)
            if f"/jobs/{job_id}" in archive:
                if f"/{path}" not in archive:
                    break
                # Values of metrics are those of a running job.
                return [] if rest.endswith("metrics") and call.query else archive[f"/{path}"]
        raise Refused(404, f"the history has no {path[:200]}")
