"""The commit protocol of files on S3: parts that nobody sees, made an object by one request.

A task writes to a local temporary file.  When it pre-commits, it begins a multipart upload for the
final key, notes the upload in ``<base>/.pending-<job id>/<sink uid>/<unique name>``, and sends the
parts.  Its committable is ``{"pending": the note, "final": ..., "upload": its id, "parts": ...}``.
The committer completes the upload, on the condition that there is no such object.  The object bears
the name of the note as metadata, so it is known whose it is.  Cases:

1. The upload is there, and no object: nobody committed it yet.  Completed.  Readers see the whole
   object or none.
2. The object bears the name of the note: an earlier run completed it and died, or the answer was
   lost.
3. The object bears another name, or none: the checkpoint directory is an older copy, and the job
   wrote this epoch before, maybe with other records.  PermanentSinkError.  In mode AT_LEAST_ONCE it
   is the output of a run that died before it published: it is copied beside, and then replaced.
4. Neither, and the run that committed it has reported that: a reader took the object away.
5. Neither otherwise: the upload was aborted by somebody else, such as a lifecycle rule of the
   bucket.  The output of a published epoch is gone; PermanentSinkError reports it.

An upload whose task dies before it is noted has no owner.  It is invisible, and a lifecycle rule
aborts it; nothing else can tell it from one of a running task.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
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
_MARK: Final = "millstream-output"
#: What a repeated completion may be answered with while the first one is at work.
_CONFLICT: Final = "ConditionalRequestConflict"
_ATTEMPTS: Final = 5


class MultipartFile:
    """A file that becomes an object when its upload is completed.

    Args:
        store: the base directory.
        context: of the writer.
        final: the path below the base that the object gets.
    """

    def __init__(self, store: ObjectStore, context: WriterContext, final: str) -> None:
        self._store = store
        self._final = final
        directory = pending_prefix(context.job_id, context.sink_uid)
        self._note = f"{directory}/{OutputNames.of_file(context, 'upload')}"
        self._upload: str | None = None
        self.stream: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by ``seal``

    @property
    def size(self) -> int:
        """Bytes written so far (a writer may hold back more)."""
        return self.stream.tell()

    def seal(self) -> Committable:
        """Upload the file, invisibly, and describe the upload.

        Raises:
            SinkError: the store refuses it or does not answer.
        """
        self.stream.flush()
        client, key = self._store.s3_client(), self._store.key_of(self._final)
        with explained(self._store, f"cannot upload {key}"):
            answer = client.create_multipart_upload(
                Bucket=self._store.bucket, Key=key, Metadata={_MARK: self._note}
            )
            self._upload = answer["UploadId"]
            crash_point("upload.begin.after")
            self._store.put(self._note, json.dumps({"key": key, "upload": self._upload}).encode())
            crash_point("upload.parts.before")
            parts = self._send(client, key)
            crash_point("upload.parts.after")
        self.stream.close()
        made = {"pending": self._note, "final": self._final}
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

    def sync_directory(self) -> None:
        """Do nothing: what the store has confirmed is durable."""

    def discard(self) -> None:
        """Abort the upload; nothing named it yet."""
        self.stream.close()
        if self._upload is not None:
            with explained(self._store, f"cannot abort the upload of {self._final}"):
                _abort(self._store, self._store.key_of(self._final), self._upload)
                self._store.delete([self._note])


class MultipartCommitter(Committer):
    """Completes multipart uploads; aborts those that no manifest names."""

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
        store.s3_client()  # made by one thread
        if len(wanted) == 1:
            _complete(store, wanted[0])
        else:
            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                list(pool.map(lambda request: _complete(store, request), wanted))
        with explained(store, "cannot delete the notes of completed uploads"):
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
                with contextlib.suppress(FileNotFoundError):  # its task is giving up, too
                    note = json.loads(store.get(names[name]))
                    _abort(store, note["key"], note["upload"])
                crash_point("upload.abort.after")
        with explained(store, "cannot delete the notes of aborted uploads"):
            store.delete([names[name] for name in orphans])


def pending_prefix(job_id: str, sink_uid: str) -> str:
    """Where the notes of uploads of a sink of a job are, below its base."""
    return f".pending-{OutputNames(job_id, sink_uid).directory}"


def _complete(store: ObjectStore, request: CommitRequest) -> None:
    """Make an upload an object; the cases are those of the module."""
    upload = _upload_of(request.committable)
    key = store.key_of(upload["final"])
    what = f"cannot complete the upload of {key}"
    crash_point("upload.complete.before")
    with explained(store, what):
        refusal = _try_to_complete(store, key, upload, new=True)
        if refusal is not None:
            _settle(store, key, request, refusal)
    crash_point("upload.complete.after")


def _settle(store: ObjectStore, key: str, request: CommitRequest, refusal: str) -> None:
    """Judge what is there where the store refuses to complete an upload."""
    upload = _upload_of(request.committable)
    mark = _mark_of(store, key)
    if mark == upload["pending"]:
        return
    if refusal == "NoSuchUpload" and mark is None:
        if request.confirmed:
            return
        message = (
            f"output of checkpoint {request.epoch} is lost: neither the upload of {key} in"
            f" {store.location} nor the object exists; a lifecycle rule may have aborted it. If a"
            " reader took it away after it was committed, confirm it by `millstream checkpoints DIR"
            f" confirm {request.epoch}` (DIR: the checkpoint directory)"
        )
        raise PermanentSinkError(message)
    if refusal != "NoSuchUpload" and not request.published:
        _copy_beside(store, key, mark)
        refused = _try_to_complete(store, key, upload, new=False)
        if refused is None or _mark_of(store, key) == upload["pending"]:
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


def _try_to_complete(
    store: ObjectStore, key: str, upload: dict[str, Any], *, new: bool
) -> str | None:
    """Complete an upload; returns the code of a refusal that says what is there."""
    from botocore.exceptions import ClientError

    parts = [{"PartNumber": number + 1, "ETag": tag} for number, tag in enumerate(upload["parts"])]
    condition = {"IfNoneMatch": "*"} if new else {}
    for attempt in range(_ATTEMPTS):
        try:
            store.s3_client().complete_multipart_upload(
                Bucket=store.bucket,
                Key=key,
                UploadId=upload["upload"],
                MultipartUpload={"Parts": parts},
                **condition,
            )
        except ClientError as error:
            code = _code_of(error)
            if code == _CONFLICT and attempt < _ATTEMPTS - 1:
                continue
            if code in ("NoSuchUpload", "PreconditionFailed"):
                return code
            raise
        return None
    return _CONFLICT


def _mark_of(store: ObjectStore, key: str) -> str | None:
    """Return which upload has made an object, empty if unknown; None: there is no object."""
    from botocore.exceptions import ClientError

    try:
        found = store.s3_client().head_object(Bucket=store.bucket, Key=key)
    except ClientError as error:
        if _code_of(error) in ("404", "NoSuchKey", "NotFound"):
            return None
        raise
    return str(found.get("Metadata", {}).get(_MARK, ""))


def _copy_beside(store: ObjectStore, key: str, mark: str | None) -> None:
    """Keep an object under another name, by the run that has made it."""
    stem, dot, suffix = key.rpartition(".")
    name = (mark or "").rpartition("/")[2]
    beside = f"{stem or key}-g{generation_of(name) or 0}{dot}{suffix if stem else ''}"
    source = {"Bucket": store.bucket, "Key": key}
    store.s3_client().copy_object(Bucket=store.bucket, Key=beside, CopySource=source)


def _abort(store: ObjectStore, key: str, upload: str) -> None:
    from botocore.exceptions import ClientError

    try:
        store.s3_client().abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=upload)
    except ClientError as error:
        if _code_of(error) != "NoSuchUpload":
            raise


@contextlib.contextmanager
def explained(store: ObjectStore, what: str) -> Iterator[None]:
    """Turn errors of the client of S3, and of the store, into SinkError."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = _code_of(error)
        reason = error.response.get("Error", {}).get("Message", "")
        message = f"{store.location}: {what}: {reason} ({code})"
        permanent = code in ("NoSuchBucket", "AccessDenied", "InvalidAccessKeyId")
        raise (PermanentSinkError if permanent else SinkError)(message) from None
    except (BotoCoreError, ObjectStoreError) as error:
        message = f"{store.location}: {what}: {error}"
        raise SinkError(message) from None


def _code_of(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _upload_of(committable: Committable) -> dict[str, Any]:
    wanted = {"pending", "final", "upload", "parts"}
    if not isinstance(committable, dict) or not wanted <= committable.keys():
        message = f"not a committable of a file sink on S3: {committable!r:.200}"
        raise SinkError(message)
    return cast("dict[str, Any]", committable)
