"""The archive of a job: its responses of the REST API, for when no driver is there to give them.

In the form of Flink's archives, ``{"archive": [{"path": ..., "json": ...}]}``, in the checkpoint
directory.  Its size is bounded: details of subtasks are left out first.  ``version`` is the newest
one of the manifest log: a run that comes later, and leaves no archive, makes it stale.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.errors import CheckpointError
from millstream.rest import checkpoints, configuration, metrics, overview, subtasks, vertices
from millstream.rest.app import Call, finite
from millstream.rest.operations import Operations
from millstream.rest.security import Refused
from millstream.rest.settings import RestSettings
from millstream.rest.view import Jobs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.rest.app import Endpoint
    from millstream.rest.view import JobView

#: The blob, relative to the checkpoint directory.
NAME: Final = "archive/job.json"
#: Characters of JSON.
_LONGEST: Final = 4 << 20
_ARCHIVED: Final[tuple[Endpoint, ...]] = tuple(
    each
    for module in (overview, vertices, subtasks, metrics, checkpoints, configuration)
    for each in module.ENDPOINTS
    if each.method == "GET" and (each.path.startswith("/jobs/{jobid}") or "/overview" in each.path)
)

#: Path -> JSON.
Archive = dict[str, Any]


def archive_of(view: JobView) -> Archive:
    """Return the responses about a job, as many as fit."""
    jobs = Jobs()
    jobs.add(view)
    settings, operations = RestSettings(is_read_only=True, can_cancel=False), Operations(0.0)
    found: Archive = {}
    length = 0
    # Those about the whole job come first.
    for endpoint in sorted(_ARCHIVED, key=lambda each: each.path.count("{")):
        for names in _values(endpoint.path, view):
            path = endpoint.path.format(**names)
            try:
                answer = finite(endpoint.respond(Call(jobs, settings, operations, names, {}, {})))
            except Refused:
                continue
            length += len(path) + len(json.dumps(answer))
            if length > _LONGEST:
                return found
            found[path] = answer
    return found


def _values(path: str, view: JobView) -> Iterator[dict[str, str]]:
    """The values of the parameters of a path."""
    found: list[dict[str, str]] = [{"jobid": view.job_id}]
    if "{vertexid}" in path:
        found = [{**each, "vertexid": vertex.id} for each in found for vertex in view.vertices]
    if "{checkpointid}" in path:
        ids = [str(record.id) for record in view.history.checkpoints().records]
        found = [{**each, "checkpointid": number} for each in found for number in ids]
    if "{subtaskindex}" in path:
        counts = {vertex.id: vertex.parallelism for vertex in view.vertices}
        attempt = str(metrics.index(view).attempt)
        found = [
            {**each, "subtaskindex": str(number), "attempt": attempt}
            for each in found
            for number in range(counts[each["vertexid"]])
        ]
    known = {"jobid", "vertexid", "checkpointid", "subtaskindex", "attempt"}
    wanted = {part[1:-1] for part in path.split("/") if part.startswith("{")}
    if wanted <= known:
        yield from found


def write_archive(storage: CheckpointStorage, view: JobView) -> None:
    """Write the archive of a job that has ended, unless its checkpoints are deleted.

    Raises:
        DirectoryError: the directory cannot be written.
    """
    if JobIdentity.load(storage) is None:
        return
    entries = [{"path": path, "json": json.dumps(each)} for path, each in archive_of(view).items()]
    content = {"version": _newest_version(storage), "archive": entries}
    storage.write(NAME, json.dumps(content).encode())


def _newest_version(storage: CheckpointStorage) -> int:
    return max(ManifestLog(storage).versions(), default=-1)


def read_archive(storage: CheckpointStorage) -> Archive | None:
    """Return the archive in a checkpoint directory; None: there is none of the last run.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        content: Mapping[str, Any] = json.loads(storage.read(NAME))
        if content["version"] != _newest_version(storage):
            return None
        return {each["path"]: json.loads(each["json"]) for each in content["archive"]}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        message = f"{NAME} in {storage.location} is damaged ({error!r}): delete it"
        raise CheckpointError(message) from error
