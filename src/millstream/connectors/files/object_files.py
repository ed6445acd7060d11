"""The commit protocol of files in object stores: invisible until one request makes them objects.

A task writes to a local temporary file, and uploads it when it pre-commits.  Its committable names
the final key and a hidden object ``<base>/.pending-<job id>/<sink uid>/<unique name>``.

- S3: the file is a multipart upload for the final key, and the hidden object a note of it.
  ``{"pending": the note, "final": ..., "upload": its id, "parts": ...}``.  The committer completes
  the upload, on the condition that there is no object.
- Google Cloud Storage and Azure, where no other process can complete what one has begun: the hidden
  object has the content.  ``{"pending": ..., "final": ..., "size": ...}``.  The committer has the
  store copy it, on the same condition.

The object that is made bears the name of the hidden one as metadata, so it is known whose it is.
Cases:

1. The upload is there, and no object: nobody committed it yet.  Completed.  Readers see the whole
   object or none.
2. The object bears the name of the upload: an earlier run completed it and died, or the answer was
   lost.
3. The object bears another name, or none: the checkpoint directory is an older copy, and the job
   wrote this epoch before, maybe with other records.  PermanentSinkError.  In mode AT_LEAST_ONCE it
   is the output of a run that died before it published: it is copied beside, and then replaced.
4. Neither, and the run that committed it has reported that: a reader took the object away.
5. Neither otherwise: the upload was aborted by somebody else, such as a lifecycle rule of the
   bucket.  The output of a published epoch is gone; PermanentSinkError reports it.

A multipart upload whose task dies before it is noted has no owner.  It is invisible, and a
lifecycle rule aborts it; nothing else can tell it from one of a running task.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, Final, cast

from millstream.connectors.output_names import OutputNames, generation_of
from millstream.contracts.sink import Committer, says_progress
from millstream.crash_points import crash_point
from millstream.errors import ObjectStoreError, PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.contracts.sink import CommitRequest, Committable, WriterContext
    from millstream.object_stores import ObjectStore


#: Bytes of a part; S3 wants 5 MiB at least, and has 10,000 parts at most.
_PART_BYTES: Final = 16 << 20
_MOST_PARTS: Final = 10_000
#: Requests of one file, and files of one commit, that are under way at a time.
_AT_A_TIME: Final = 4
#: Metadata of an object: the note of the upload that has made it.
_MARK: Final = "millstreamoutput"
#: What a repeated completion may be answered with while the first one is at work.
_CONFLICT: Final = "ConditionalRequestConflict"
#: Seconds after each such answer.
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4)
#: What a store refuses: the object exists; there is nothing to make one of.
_EXISTS: Final = "PreconditionFailed"
_NO_UPLOAD: Final = "NoSuchUpload"
#: Seconds that a copy may take after the store has answered.
_PATIENCE: Final = 60.0


class ObjectFile(ABC):
    """A file that becomes an object when it is committed.

    Args:
        store: the base directory.
        context: of the writer.
        final: the path below the base that the object gets.
    """

    def __init__(self, store: ObjectStore, context: WriterContext, final: str) -> None:
        self._store = store
        self._final = final
        directory = pending_prefix(context.job_id, context.sink_uid)
        self._pending = f"{directory}/{OutputNames.of_file(context, 'upload')}"
        self.stream: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by ``seal``

    @staticmethod
    def create(store: ObjectStore, context: WriterContext, final: str) -> ObjectFile:
        """Begin a file in the way of the store."""
        kind = MultipartFile if store.uploads_in_parts else HiddenFile
        return kind(store, context, final)

    @property
    def size(self) -> int:
        """Bytes written so far (a writer may hold back more)."""
        return self.stream.tell()

    @abstractmethod
    def seal(self) -> Committable:
        """Upload the file, invisibly, and describe the upload.

        Raises:
            SinkError: the store refuses it or does not answer.
        """

    def sync_directory(self) -> None:
        """Do nothing: what the store has confirmed is durable."""

    @abstractmethod
    def discard(self) -> None:
        """Delete what was uploaded; nothing named it yet."""


class HiddenFile(ObjectFile):
    """A file that is uploaded under a hidden name, for stores that copy it when it is committed."""

    def seal(self) -> Committable:
        self.stream.flush()
        size = self.size
        crash_point("upload.parts.before")
        with explained(self._store, f"cannot upload {self._final}"):
            self._store.put(self._pending, self.stream, {_MARK: self._pending})
        crash_point("upload.parts.after")
        self.stream.close()
        return {"pending": self._pending, "final": self._final, "size": size}

    def discard(self) -> None:
        self.stream.close()
        with explained(self._store, f"cannot delete {self._pending}"):
            self._store.delete([self._pending])


class MultipartFile(ObjectFile):
    """A file that becomes an object when its multipart upload is completed."""

    #: The id of the upload; None: it has not begun.
    _upload: str | None = None

    def seal(self) -> Committable:
        self.stream.flush()
        client, key = self._store.s3_client(), self._store.key_of(self._final)
        with explained(self._store, f"cannot upload {key}"):
            answer = client.create_multipart_upload(
                Bucket=self._store.bucket, Key=key, Metadata={_MARK: self._pending}
            )
            self._upload = answer["UploadId"]
            crash_point("upload.begin.after")
            self._store.put(
                self._pending, json.dumps({"key": key, "upload": self._upload}).encode()
            )
            crash_point("upload.parts.before")
            parts = self._send(client, key)
            crash_point("upload.parts.after")
        self.stream.close()
        made = {"pending": self._pending, "final": self._final}
        return {**made, "upload": self._upload, "parts": parts}

    def _send(self, client: Any, key: str) -> list[str]:
        """Send the parts, some at a time; returns their tags."""
        size = self.size
        length = max(_PART_BYTES, -(-size // _MOST_PARTS))
        starts = range(0, max(size, 1), length)

        def send(number: int, content: bytes) -> str:
            answer = client.upload_part(
                Bucket=self._store.bucket,
                Key=key,
                UploadId=self._upload,
                PartNumber=number,
                Body=content,
            )
            return str(answer["ETag"])

        self.stream.seek(0)
        if len(starts) == 1:
            return [send(1, self.stream.read())]
        tags: list[str] = []
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            for first in range(0, len(starts), _AT_A_TIME):  # so many parts are in memory
                numbers = range(first, min(first + _AT_A_TIME, len(starts)))
                contents = [self.stream.read(length) for _ in numbers]
                tags += pool.map(send, (number + 1 for number in numbers), contents)
        return tags

    def discard(self) -> None:
        self.stream.close()
        if self._upload is not None:
            with explained(self._store, f"cannot abort the upload of {self._final}"):
                _abort(self._store, self._store.key_of(self._final), self._upload)
                self._store.delete([self._pending])


class ObjectFileCommitter(Committer):
    """Makes uploads objects; deletes those that no manifest names."""

    def __init__(self, store: ObjectStore) -> None:
        self.target = f"files in {store.location}"
        self._store = store

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Complete the uploads, some at a time.

        Raises:
            SinkError: the store does not answer, or the output of a published epoch is missing.
        """
        wanted = [request for request in requests if not says_progress(request.committable)]
        if not wanted:
            return
        store = self._store
        if store.uploads_in_parts:
            store.s3_client()  # made by one thread
        if len(wanted) == 1:
            _complete(store, wanted[0])
        else:
            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                list(pool.map(lambda request: _complete(store, request), wanted))
        with explained(store, "cannot delete the hidden objects of completed uploads"):
            store.delete([_upload_of(request.committable)["pending"] for request in wanted])

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        store = self._store
        kept = {_upload_of(each)["pending"] for each in keep if not says_progress(each)}
        prefix = pending_prefix(job_id, sink_uid)
        with explained(store, f"cannot list {prefix}"):
            names = {each.rpartition("/")[2]: each for each in store.list_keys(prefix)}
        orphans = OutputNames.orphans(names, {each.rpartition("/")[2] for each in kept}, generation)
        for name in orphans:
            with explained(store, f"cannot abort {names[name]}"):
                if store.uploads_in_parts:
                    with contextlib.suppress(FileNotFoundError):  # its task is giving up, too
                        note = json.loads(store.get(names[name]))
                        _abort(store, note["key"], note["upload"])
                crash_point("upload.abort.after")
        with explained(store, "cannot delete the hidden objects of aborted uploads"):
            store.delete([names[name] for name in orphans])


def pending_prefix(job_id: str, sink_uid: str) -> str:
    """Where the hidden objects of a sink of a job are, below its base."""
    return f".pending-{OutputNames(job_id, sink_uid).directory}"


def _complete(store: ObjectStore, request: CommitRequest) -> None:
    """Make an upload an object; the cases are those of the module."""
    upload = _upload_of(request.committable)
    what = f"cannot complete the upload of {store.key_of(upload['final'])}"
    crash_point("upload.complete.before")
    with explained(store, what):
        refusal = _try_to_complete(store, upload, new=True)
        if refusal is not None:
            _settle(store, request, refusal)
        _wait_until_whole(store, upload)
    crash_point("upload.complete.after")


def _settle(store: ObjectStore, request: CommitRequest, refusal: str) -> None:
    """Judge what is there where the store refuses to complete an upload."""
    upload = _upload_of(request.committable)
    key = store.key_of(upload["final"])
    mark = _mark_of(store, upload["final"])
    if mark == upload["pending"]:
        return
    if refusal == _NO_UPLOAD and mark is None:
        if request.confirmed:
            return
        message = (
            f"output of checkpoint {request.epoch} is lost: neither the upload of {key} in"
            f" {store.location} nor the object exists; a lifecycle rule may have aborted it. If a"
            " reader took it away after it was committed, confirm it by `millstream checkpoints DIR"
            f" confirm {request.epoch}` (DIR: the checkpoint directory)"
        )
        raise PermanentSinkError(message)
    if refusal != _NO_UPLOAD and not request.published:
        _copy_beside(store, upload["final"], mark)
        refused = _try_to_complete(store, upload, new=False)
        if refused is None or _mark_of(store, upload["final"]) == upload["pending"]:
            return
        message = (
            f"output of checkpoint {request.epoch} is not committed: the upload of {key} in"
            f" {store.location} cannot be completed ({refused}), and the object there is of"
            " another run; a lifecycle rule may have aborted the upload"
        )
        raise PermanentSinkError(message)
    message = (
        f"output of checkpoint {request.epoch} is not committed: {key} in {store.location} exists"
        " already, written by a run that this checkpoint directory does not know, so it is older"
        " than the output. Put back both from one copy, or move the output that was written since"
        " out of the way"
    )
    raise PermanentSinkError(message)


def _try_to_complete(store: ObjectStore, upload: dict[str, Any], *, new: bool) -> str | None:
    """Complete an upload; returns the code of a refusal that says what is there.

    Raises:
        ClientError: the store does not answer, or is at work with another request for the object.
    """
    if not store.uploads_in_parts:
        try:
            made = store.copy(upload["pending"], upload["final"], replace=not new)
        except FileNotFoundError:
            return _NO_UPLOAD
        return None if made else _EXISTS
    from botocore.exceptions import ClientError

    parts = [{"PartNumber": number + 1, "ETag": tag} for number, tag in enumerate(upload["parts"])]
    request = {
        "Bucket": store.bucket,
        "Key": store.key_of(upload["final"]),
        "UploadId": upload["upload"],
        "MultipartUpload": {"Parts": parts},
        **({"IfNoneMatch": "*"} if new else {}),
    }
    pauses = list(_PAUSES)
    while True:
        try:
            store.s3_client().complete_multipart_upload(**request)
        except ClientError as error:
            code = _code_of(error)
            if code in (_NO_UPLOAD, _EXISTS):
                return code
            if code != _CONFLICT or not pauses:
                raise  # a conflict does not tell what is there: the commit is repeated later
            time.sleep(pauses.pop(0))
        else:
            return None


def _wait_until_whole(store: ObjectStore, upload: dict[str, Any]) -> None:
    """Wait for a store that answers before it has copied all of an object (Azure).

    Raises:
        SinkError: it takes too long; the commit is repeated.
    """
    if not store.copies_later:
        return
    deadline = time.monotonic() + _PATIENCE
    while True:
        found = store.find(upload["final"])
        if found is None or found.size == upload["size"]:  # None: a reader took it away
            return
        if time.monotonic() > deadline:
            message = (
                f"{store.location}: the copy of {upload['pending']} to {upload['final']} is not"
                f" complete after {_PATIENCE:.0f} s: {found.size} of {upload['size']} bytes"
            )
            raise SinkError(message)
        time.sleep(0.1)


def _mark_of(store: ObjectStore, final: str) -> str | None:
    """Return which upload has made an object, empty if unknown; None: there is no object."""
    try:
        return store.attribute(final, _MARK) or ""
    except FileNotFoundError:
        return None


def _copy_beside(store: ObjectStore, final: str, mark: str | None) -> None:
    """Keep an object under another name, by the run that has made it."""
    stem, dot, suffix = final.rpartition(".")
    name = (mark or "").rpartition("/")[2]
    beside = f"{stem or final}-g{generation_of(name) or 0}{dot}{suffix if stem else ''}"
    store.copy(final, beside, replace=True)


def _abort(store: ObjectStore, key: str, upload: str) -> None:
    from botocore.exceptions import ClientError

    try:
        store.s3_client().abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=upload)
    except ClientError as error:
        if _code_of(error) != _NO_UPLOAD:
            raise


@contextlib.contextmanager
def explained(store: ObjectStore, what: str) -> Iterator[None]:
    """Turn errors of the store, and of the client of S3, into SinkError."""
    try:
        yield
    except ObjectStoreError as error:
        message = f"{store.location}: {what}: {error}"
        raise SinkError(message) from None
    except Exception as error:
        reason = _reason_of_s3(error) if store.uploads_in_parts else None
        if reason is None:
            raise
        text, permanent = reason
        message = f"{store.location}: {what}: {text}"
        raise (PermanentSinkError if permanent else SinkError)(message) from None


def _reason_of_s3(error: Exception) -> tuple[str, bool] | None:
    """Return what the client of S3 says, and whether it is permanent; None: it is not its error."""
    from botocore.exceptions import BotoCoreError, ClientError

    if isinstance(error, ClientError):
        code = _code_of(error)
        text = f"{error.response.get('Error', {}).get('Message', '')} ({code})"
        return text, code in ("NoSuchBucket", "AccessDenied", "InvalidAccessKeyId")
    return (str(error), False) if isinstance(error, BotoCoreError) else None


def _code_of(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _upload_of(committable: Committable) -> dict[str, Any]:
    kinds = ({"pending", "final", "upload", "parts"}, {"pending", "final", "size"})
    if not isinstance(committable, dict) or not any(each <= committable.keys() for each in kinds):
        message = f"not a committable of a file sink in an object store: {committable!r:.200}"
        raise SinkError(message)
    return cast("dict[str, Any]", committable)
