"""Object stores by URI: opening one, its requests, and errors that say what is wrong.

One place decides by the scheme of a URI whether it names an object store, and which.  Everything
above works with keys in a bucket (Azure: a container), and never sees the library.

Credentials are those that the options give, else those of a profile, else those that the library
finds: environment variables, web identity, the metadata service of the machine.

A store is picklable, but not with credentials: it travels in plans, which Spark keeps as properties
of its jobs.  What the options gave travels once, in what a worker is given of a job before all else
(``graph/job_files.py``), and a store finds it there by a random token.  The token is that of one
job: jobs of one process have different credentials, and count their requests separately.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections import Counter
from configparser import ConfigParser
from configparser import Error as ProfileError
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote, urlsplit

from millstream.configuration import options
from millstream.errors import ConfigurationError, ObjectStoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from obstore.store import AzureStore, GCSStore, S3Store

    from millstream.configuration.configuration import Configuration
    from millstream.configuration.option import ConfigOption


_EXTRA: Final = "millstream[objectstore]"
#: Scheme -> what the store is.
_STORES: Final = {
    "s3": "S3",
    "s3a": "S3",
    "gs": "Google Cloud Storage",
    "az": "Azure Blob Storage",
    "abfs": "Azure Blob Storage",
    "abfss": "Azure Blob Storage",
}
#: Schemes of Hadoop's file system.
_HDFS: Final = ("hdfs", "viewfs", "webhdfs", "swebhdfs")
_URI: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]*)://")
#: Bytes above which an object is uploaded in parts, and how long a part is.
_PART_BYTES: Final = 8 << 20
#: Objects that one request deletes.
_DELETED_AT_ONCE: Final = 1000
#: Requests that fail for a reason that may pass are tried again for so long.
_PATIENCE: Final = timedelta(seconds=60)
#: As long as a check at submission waits, which is to say soon that there is no such server.
_SHORT_PATIENCE: Final = timedelta(seconds=5)
#: How often a put that conflicts with another request is tried again.
_PUT_ATTEMPTS: Final = 8
#: Metadata of an object: which put has made it.  Azure wants a name without a hyphen.
_WRITER: Final = "millstreamput"
#: Of the answer, or of what the library says of one of several objects to delete.
_CODE: Final = re.compile(r"<Code>(\w+)</Code>|\(code: ([A-Za-z]\w*)\)")
_REASON: Final = re.compile(r"<Message>([^<]*)</Message>")
_STATUS: Final = re.compile(r"status code: (\d+ [A-Za-z ]+)")


def scheme_of(location: str) -> str | None:
    """Return the scheme of a location of the form ``scheme://...``; None: it is a path."""
    found = _URI.match(location)
    return None if found is None else found[1].lower()


def unsupported_scheme(location: str) -> str:
    """Return why a location of another scheme cannot be used, and what can; for messages."""
    if scheme_of(location) in _HDFS:
        return (
            "HDFS is not supported: its client library (libhdfs) is part of Hadoop, and files"
            " mounted from it cannot be created by hard links. Use an object store (s3://, gs://,"
            " az:// or abfss://; Apache Ozone has the interface of S3), or a shared file system"
            " (NFS)"
        )
    return (
        "this scheme is not supported. Give a path or a file: URI of a local or mounted file"
        " system, or the URI of an object store (s3://, gs://, az:// or abfss://)"
    )


def is_object_store(location: str) -> bool:
    """Return whether a location names an object store that is supported."""
    return scheme_of(location) in _STORES


class Requests:
    """Counts requests of one job in one process, and the bytes of objects in them.

    Kinds are put, get, list, delete and multipart; ``sentBytes`` and ``receivedBytes`` are bytes.
    Requests that ``obstore`` repeats count once, those that ``boto3`` repeats each time.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def add(self, kind: str, count: int = 1, *, sent: int = 0, received: int = 0) -> None:
        """Count requests of a kind, and bytes of the content of objects."""
        with self._lock:
            self._counts.update({kind: count, SENT_BYTES: sent, RECEIVED_BYTES: received})

    def take(self) -> dict[str, int]:
        """Return what was counted since the last call, by kind, without zeros."""
        with self._lock:
            taken = {kind: count for kind, count in sorted(self._counts.items()) if count}
            self._counts.clear()
        return taken


SENT_BYTES: Final = "sentBytes"
RECEIVED_BYTES: Final = "receivedBytes"
#: Kinds of requests, in the order in which they are shown.
REQUEST_KINDS: Final = ("put", "get", "list", "delete", "multipart")


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """Find the store options of a job, and its count of requests, in any of its processes.

    It is part of plans, so it contains a token instead of credentials.
    """

    #: Empty: credentials are those of a profile or the environment.
    token: str = ""

    @property
    def options(self) -> StoreOptions:
        """The options of the job.

        Raises:
            ObjectStoreError: this process has not received them.
        """
        if self.token and self.token not in _known:
            message = "its credentials were not sent to this process"
            raise ObjectStoreError(message)
        return _known.get(self.token, StoreOptions())

    @property
    def requests(self) -> Requests:
        """Requests of the job in this process."""
        with _counting:
            return _requests.setdefault((os.getpid(), self.token), Requests())

    def open(self, location: str) -> ObjectStore:
        """Return the store at a URI.

        Raises:
            ConfigurationError: the URI is malformed, or the library is not installed.
        """
        return ObjectStore(location, self)


class OpensStores:
    """A part of a program that may read or write objects named by a URI."""

    #: Of the job; without one, credentials are those of a profile or the environment.
    stores: StoreAccess = StoreAccess()

    def opened_with(self, stores: StoreAccess) -> Self:
        """Return a copy that opens object stores with the options of a job; else itself."""
        del stores
        return self

    def _copy_with(self, stores: StoreAccess) -> Self:
        """Return a copy that has the options of a job."""
        made = copy(self)
        made.stores = stores
        return made


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Endpoint, region and credentials of object stores, as far as the options set them."""

    #: Key and value of each that is set, in the order of the options, then those of one bucket.
    values: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    #: The job whose requests are counted together; empty: no job.
    job: str = ""

    def __reduce__(self) -> tuple[object, ...]:
        """Travel with a token, under which the process that gets it finds it again."""
        return _received, (self.token, self.values, self.job)

    @property
    def token(self) -> str:
        """The name of these options in this process and its workers; empty if nothing is set."""
        if self.job:
            _known[self.job] = self
            return self.job
        if not self.values:
            return ""
        token = next((each for each, known in _known.items() if known == self), None)
        if token is None:
            token = uuid.uuid4().hex
            _known[token] = self
        return token

    @property
    def access(self) -> StoreAccess:
        """What sources, sinks and storages of the job keep instead of the options."""
        return StoreAccess(self.token)

    @classmethod
    def of(cls, configuration: Configuration) -> StoreOptions:
        """Return the options of a configuration.

        Raises:
            ConfigurationError: a value is invalid, or an option of a bucket is unknown.
        """
        found = []
        for option in options.OBJECT_STORE_OPTIONS:
            if configuration.contains(option):
                value = configuration.get(option)
                found.append((option.key, value if isinstance(value, str) else str(value).lower()))
        for key, value in sorted(configuration.to_dict().items()):
            bucket, option_of_bucket = _option_of_bucket(key)
            if option_of_bucket is not None:
                read = str(option_of_bucket.read(value))
                read = read if isinstance(option_of_bucket.default, str) else read.lower()
                found.append((f"{_OF_BUCKET}{bucket}.{option_of_bucket.key}", read))
        return cls(tuple(found))

    def for_job(self) -> StoreOptions:
        """Return these options for one job, whose requests are counted separately."""
        return replace(self, job=uuid.uuid4().hex)

    def of_bucket(self, bucket: str) -> StoreOptions:
        """Return the options with which a bucket is opened.

        An option of the bucket replaces the one for all buckets, credentials all together: a
        session token of other keys makes those of the bucket invalid.
        """
        prefix = f"{_OF_BUCKET}{bucket}."
        special = {
            key.removeprefix(prefix): value
            for key, value in self.values
            if key.startswith(prefix) and key.removeprefix(prefix) in _OPTION_KEYS
        }
        general = {key: value for key, value in self.values if not key.startswith(_OF_BUCKET)}
        if _CREDENTIALS & special.keys():
            general = {key: value for key, value in general.items() if key not in _CREDENTIALS}
        return StoreOptions(tuple({**general, **special}.items()))

    def get(self, option: ConfigOption[Any]) -> str:
        """Return the value of an option; empty if it is not set."""
        return dict(self.values).get(option.key, "")


_OF_BUCKET: Final = "s3.bucket."
_OPTION_KEYS: Final = {option.key for option in options.OBJECT_STORE_OPTIONS}
_CREDENTIALS: Final = {
    option.key
    for option in (
        *(options.S3_ACCESS_KEY, options.S3_SECRET_KEY),
        *(options.S3_SESSION_TOKEN, options.S3_PROFILE),
    )
}
#: Name after the bucket -> option.
_PROPERTIES: Final = {
    re.sub(r"^(millstream\.)?s3\.", "", name): option
    for option in options.OBJECT_STORE_OPTIONS
    for name in (option.key, *option.aliases)
    if not name.startswith("fs.")
}


def _option_of_bucket(key: str) -> tuple[str, ConfigOption[Any] | None]:
    """Return bucket and option of ``s3.bucket.<bucket>.<option>``; None: the key is another one.

    Raises:
        ConfigurationError: there is no such option.
    """
    if not key.startswith(_OF_BUCKET):
        return "", None
    rest = key.removeprefix(_OF_BUCKET)
    for name in sorted(_PROPERTIES, key=len, reverse=True):
        if rest.endswith(f".{name}"):
            return rest.removesuffix(f".{name}"), _PROPERTIES[name]
    message = f"unknown option {key!r}: after the bucket follows one of {', '.join(_PROPERTIES)}"
    raise ConfigurationError(message)


#: Token -> options: of jobs of this process, or that have been sent to it.
_known: Final[dict[str, StoreOptions]] = {}
#: Process and token -> requests: a forked process begins with none.
_requests: Final[dict[tuple[int, str], Requests]] = {}
_counting: Final = Lock()


def _received(token: str, values: tuple[tuple[str, str], ...], job: str) -> StoreOptions:
    received = StoreOptions(values, job)
    if token:
        _known[token] = received
    return received


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object as a listing shows it."""

    key: str
    #: In bytes.
    size: int
    modified: datetime


class ObjectStore:
    """The objects of one bucket (Azure: container) under a prefix.

    Args:
        location: its URI, such as ``s3://bucket/path``.
        store_options: endpoint and credentials, as far as the options give them, or where to
            find them.

    Raises:
        ConfigurationError: the URI is malformed, or the library is not installed.
    """

    def __init__(
        self, location: str, store_options: StoreOptions | StoreAccess | None = None
    ) -> None:
        self._scheme, self.bucket, self._account, self.prefix = _parts(location)
        given = store_options or StoreAccess()
        self.access = given.access if isinstance(given, StoreOptions) else given
        require_library()

    @property
    def _options(self) -> StoreOptions:
        try:
            return self.access.options.of_bucket(self.bucket)
        except ObjectStoreError as error:
            message = f"{self.location}: {error}"
            raise ObjectStoreError(message) from None

    @property
    def _requests(self) -> Requests:
        return self.access.requests

    @property
    def location(self) -> str:
        """The URI, in one form whichever way it was written; it holds no credentials."""
        where = f"{self.bucket}@{self._account}" if self._account else self.bucket
        return f"{self._scheme}://{where}/{self.prefix}".rstrip("/")

    @property
    def uploads_in_parts(self) -> bool:
        """Whether the store has multipart uploads whose ids are known to who makes them."""
        return self._scheme == "s3"

    @property
    def copies_later(self) -> bool:
        """Whether the store may answer before a copy is whole."""
        return _STORES[self._scheme].startswith("Azure")

    def s3_client(self) -> Any:
        """Return a client of boto3, which unlike the library shows the ids of multipart uploads.

        Raises:
            ConfigurationError: boto3 is not installed.
        """
        return _s3_client(os.getpid(), self._options, self.access)

    @property
    def kind(self) -> str:
        """What the store is, for messages."""
        return _STORES[self._scheme]

    def __repr__(self) -> str:
        return f"ObjectStore({self.location!r})"

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object; False, and nothing written, if there is one.

        The library repeats a request whose answer is lost, and is then told that the object
        exists.  So each put leaves its own id in the metadata, and who is refused looks whose
        object it is.

        Raises:
            ObjectStoreError: the store does not answer, or refuses the request.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        writer = uuid.uuid4().hex
        for _ in range(_PUT_ATTEMPTS):
            self._requests.add("put", sent=len(content))
            try:
                with self._explained("write", key):
                    obstore.put(
                        *(self._open(), self.key_of(key), content),
                        mode="create",
                        attributes={_WRITER: writer},
                    )
            except (AlreadyExistsError, PreconditionError):
                # Missing now: the store refuses, with a conflict, while another request for the
                # same key is at work, be it a deletion.
                with contextlib.suppress(FileNotFoundError):
                    return self.attribute(key, _WRITER) == writer
            else:
                return True
        message = f"{self.location}: {key} can be neither created nor read: others change it"
        raise ObjectStoreError(message)

    def put(
        self,
        key: str,
        content: bytes | Path | IO[bytes],
        attributes: dict[str, str] | None = None,
    ) -> None:
        """Create or replace an object; a large one is uploaded in parts, several at a time.

        Args:
            key: of the object.
            content: of it; of a file that is open, all of it.
            attributes: metadata; names must be identifiers.
        """
        import obstore

        if isinstance(content, bytes):
            size = len(content)
        elif isinstance(content, Path):
            size = content.stat().st_size
        else:
            size = content.seek(0, os.SEEK_END)
            content.seek(0)
        in_parts = size > _PART_BYTES
        if in_parts:
            self._requests.add("multipart", 2 + -(-size // _PART_BYTES), sent=size)
        else:
            self._requests.add("put", sent=size)
        with self._explained("write", key):
            obstore.put(
                *(self._open(), self.key_of(key), content),
                use_multipart=in_parts,
                chunk_size=_PART_BYTES,
                attributes=attributes,
            )

    def copy(self, source: str, target: str, *, replace: bool = False) -> bool:
        """Copy an object within the store; False, and nothing written, if ``target`` exists.

        Metadata is copied, too.  Azure may answer before the copy is whole; it is empty until then.

        Args:
            source: key of the object.
            target: key of the copy.
            replace: copy even if there is one.

        Raises:
            FileNotFoundError: there is no such object.
            ObjectStoreError: the store does not answer, or refuses the request.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        self._requests.add("put")
        try:
            with self._explained("read", source):
                obstore.copy(
                    self._open(), self.key_of(source), self.key_of(target), overwrite=replace
                )
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def get(self, key: str) -> bytes:
        """Return an object; raises FileNotFoundError."""
        import obstore

        self._requests.add("get")
        with self._explained("read", key):
            content = bytes(obstore.get(self._open(), self.key_of(key)).bytes())
        self._requests.add("get", 0, received=len(content))
        return content

    def get_to(self, key: str, path: Path) -> None:
        """Write an object into a new local file; raises FileNotFoundError."""
        import obstore

        self._requests.add("get")
        with self._explained("read", key):
            chunks = obstore.get(self._open(), self.key_of(key)).stream(min_chunk_size=1 << 20)
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    self._requests.add("get", 0, received=file.write(chunk))

    def exists(self, key: str) -> bool:
        """Return whether there is such an object."""
        return self.find(key) is not None

    def find(self, key: str) -> ObjectEntry | None:
        """Return size and time of an object; None if there is none."""
        import obstore

        self._requests.add("get")
        with self._explained("read", key), contextlib.suppress(FileNotFoundError):
            found = obstore.head(self._open(), self.key_of(key))
            return ObjectEntry(key, found["size"], found["last_modified"])
        return None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of an object; raises FileNotFoundError.

        Args:
            key: of the object.
            start: of the part, in bytes.
            length: of the part; it must not reach beyond the end.
        """
        import obstore

        self._requests.add("get", received=length)
        with self._explained("read", key):
            return bytes(
                obstore.get_range(self._open(), self.key_of(key), start=start, length=length)
            )

    def list_keys(self, prefix: str = "", *, most: int | None = None) -> Iterator[str]:
        """List the keys below ``prefix``, a path without its last slash, in no particular order."""
        return (entry.key for entry in self.list_objects(prefix, most=most))

    def list_objects(self, prefix: str = "", *, most: int | None = None) -> Iterator[ObjectEntry]:
        """List objects with size and time, as ``list_keys``."""
        import obstore

        start = self.key_of(prefix)
        below = f"{self.prefix}/" if self.prefix else ""
        count = 0
        with self._explained("list", prefix):
            pages = obstore.list(self._open(), start or None, chunk_size=min(most or 1000, 1000))
            self._requests.add("list")
            for number, page in enumerate(pages):
                if number:
                    self._requests.add("list")
                for entry in page:
                    key = entry["path"].removeprefix(below)
                    yield ObjectEntry(key, entry["size"], entry["last_modified"])
                    count += 1
                    if count == most:
                        return

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that do not exist are passed over."""
        import obstore

        paths = [self.key_of(key) for key in keys]
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            self._requests.add("delete")
            with self._explained("delete", ""):
                try:
                    obstore.delete(self._open(), paths[start : start + _DELETED_AT_ONCE])
                except FileNotFoundError as error:  # of stores that delete one by one
                    if _code_of(error) == "NoSuchBucket":
                        raise
                    self._delete_one_by_one(paths[start : start + _DELETED_AT_ONCE])

    def check(self) -> None:
        """Make sure that the bucket is there and can be listed; nothing is written.

        Raises:
            ObjectStoreError: it cannot, for the reason that it gives.
        """
        import obstore

        self._requests.add("list")
        with self._explained("list", ""):
            next(iter(obstore.list(self._open(soon=True), self.prefix or None, chunk_size=1)), None)

    def probe(self) -> None:
        """Make sure that objects can be written, read and deleted, and created only once.

        Raises:
            ObjectStoreError: the store lacks something, or refuses it.
        """
        key = f".probe-{uuid.uuid4().hex}"
        try:
            self._create_twice(key)
        except BaseException:
            with contextlib.suppress(ObjectStoreError, FileNotFoundError):  # the first one counts
                self.delete([key])
            raise
        self.delete([key])

    def _create_twice(self, key: str) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        store, path = self._open(soon=True), self.key_of(key)
        for attempt in range(2):
            self._requests.add("put", sent=1)
            with self._explained("write", key):
                try:
                    # With metadata, as ``put_if_absent``: a store may refuse just that.
                    obstore.put(
                        *(store, path, str(attempt).encode()),
                        mode="create",
                        attributes={_WRITER: key},
                    )
                except (AlreadyExistsError, PreconditionError):
                    break
        else:
            raise ObjectStoreError(self._without_conditional_put())
        if self.get(key) != b"0":
            raise ObjectStoreError(self._without_conditional_put())

    def _without_conditional_put(self) -> str:
        return (
            f"{self.location}: the store does not support conditional writes (a PUT with"
            " `If-None-Match: *` replaced an object that exists), so two runs of a job could both"
            " publish checkpoints. Use a store that supports them (Amazon S3, Google Cloud Storage,"
            " Azure Blob Storage, and current versions of MinIO, Ceph and R2), or a mounted file"
            " system"
        )

    def attribute(self, key: str, name: str) -> str | None:
        """Return metadata of an object; None if it has none of that name.

        Raises:
            FileNotFoundError: there is no such object.
        """
        import obstore

        self._requests.add("get")
        with self._explained("read", key):
            found = obstore.get(self._open(), self.key_of(key), options={"head": True}).attributes
        value = found.get(name)
        return value if value is None else str(value)

    def _delete_one_by_one(self, paths: Iterable[str]) -> None:
        import obstore

        for path in paths:
            self._requests.add("delete")
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(self._open(), path)

    def key_of(self, name: str) -> str:
        """Return the key in the bucket of a name below the prefix."""
        return "/".join(part for part in (self.prefix, name.strip("/")) if part)

    def _open(self, *, soon: bool = False) -> S3Store | GCSStore | AzureStore:
        place = self._scheme, self.bucket, self._account
        with self._explained("open", ""):
            return _opened(os.getpid(), place, self._options, soon=soon)

    @contextlib.contextmanager
    def _explained(self, doing: str, key: str) -> Iterator[None]:
        """Turn what the library raises into ObjectStoreError.

        That an object is missing, or exists, is part of the contract of those who ask; that the
        bucket is missing is not.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except FileNotFoundError as error:
            if _code_of(error) != "NoSuchBucket" and doing == "read":
                message = f"{self.location} has no object {key}"
                raise FileNotFoundError(message) from None
            raise ObjectStoreError(self._reason(error, doing, key)) from None
        except BaseError as error:
            # Without the cause: its text repeats the configuration of the client.
            raise ObjectStoreError(self._reason(error, doing, key)) from None

    def _reason(self, error: Exception, doing: str, key: str) -> str:
        """Return what went wrong and what to do, from what the library says."""
        text, code = str(error), _code_of(error)
        what = f"{self.location}: cannot {doing} {key or 'objects'}"
        if code in ("NoSuchBucket", "ContainerNotFound"):
            return (
                f"{self.location}: there is no bucket {self.bucket!r}. Create it, or correct the"
                " name; Millstream creates no buckets"
            )
        if code in _WRONG_CREDENTIALS or "401" in (_status_of(text) or ""):
            return (
                f"{what}: the store does not accept the credentials ({code or '401'})."
                f" {_credentials_from(self._scheme)}"
            )
        if code == "AccessDenied" or "403" in (_status_of(text) or ""):
            missing = f" ({_PERMISSIONS[doing]})" if self._scheme == "s3" else ""
            return (
                f"{what}: access is denied ({code or '403'}). The credentials lack permission to"
                f" {doing} objects{missing}; they must list the bucket, and read, write and delete"
                f" the objects below the path. {_credentials_from(self._scheme)}"
            )
        if "169.254.169.254" in text or "metadata.google.internal" in text:
            return f"{what}: no credentials were found. {_credentials_from(self._scheme)}"
        if "error sending request" in text or "tcp connect" in text.lower():
            endpoint = self._options.get(options.S3_ENDPOINT) or "its default endpoint"
            return (
                f"{what}: there is no connection to the {self.kind} server at {endpoint}. Check"
                f" {options.S3_ENDPOINT.key}, the network and the proxy"
            )
        message = _REASON.search(text)
        reason = message[1] if message else _first_line(text)
        return f"{what}: {reason}" + (f" ({code})" if code else "")


#: What is done -> the permission that S3 wants for it.
_PERMISSIONS: Final = {
    "list": "s3:ListBucket",
    "open": "s3:ListBucket",
    "read": "s3:GetObject",
    "write": "s3:PutObject",
    "delete": "s3:DeleteObject",
}
#: Of S3: key or secret are wrong, or have expired.
_WRONG_CREDENTIALS: Final = (
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"),
    *("AuthenticationFailed", "InvalidAuthenticationInfo"),
)


def require_library() -> None:
    """Make sure that the library for object stores is installed.

    Raises:
        ConfigurationError: it is not.
    """
    try:
        import obstore  # noqa: F401 - whether it is there
    except ImportError as error:
        message = f"object stores need the package obstore: pip install '{_EXTRA}'"
        raise ConfigurationError(message) from error


def _parts(location: str) -> tuple[str, str, str, str]:
    """Return scheme, bucket, account (of Azure; else empty) and prefix of a URI.

    Raises:
        ConfigurationError: it is none of an object store, or malformed.
    """
    scheme = scheme_of(location)
    if scheme not in _STORES:
        known = ", ".join(f"{each}://" for each in _STORES)
        message = f"{location!r} is no URI of an object store; there are {known}"
        raise ConfigurationError(message)
    parts = urlsplit(location)
    if parts.password or (parts.username and not scheme.startswith("abfs")):
        message = (
            f"the URI of an object store must not contain credentials ({scheme}://****@"
            f"{parts.hostname}): give them as options, in a profile or in environment variables"
        )
        raise ConfigurationError(message)
    bucket, account = parts.netloc, ""
    if scheme.startswith("abfs") and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        account = host
    path = unquote(parts.path).strip("/")
    if not bucket or parts.query or parts.fragment or "//" in path:
        message = f"{location!r} is not of the form {scheme}://bucket/path"
        raise ConfigurationError(message)
    scheme = {"s3a": "s3", "abfs": "abfss"}.get(scheme, scheme)
    return scheme, bucket, account, path


@lru_cache(maxsize=64)
def _opened(
    process: int, place: tuple[str, str, str], store_options: StoreOptions, *, soon: bool
) -> S3Store | GCSStore | AzureStore:
    """A client of a bucket, one per process: connections are reused."""
    del process  # threads of the library do not survive a fork, nor do its connections
    from obstore.store import AzureStore, GCSStore

    scheme, bucket, account = place
    retry: Any = {
        "max_retries": 2 if soon else 10,
        "retry_timeout": _SHORT_PATIENCE if soon else _PATIENCE,
    }
    if scheme == "s3":
        return _open_s3(bucket, store_options, retry)
    if scheme == "gs":
        return GCSStore(bucket, retry_config=retry)
    config: Any = {"container_name": bucket}
    if account:
        config["account_name"] = account.partition(".")[0]
    return AzureStore(config=config, retry_config=retry)


def _open_s3(bucket: str, store_options: StoreOptions, retry: Any) -> S3Store:
    from obstore.store import S3Store

    config: dict[str, Any] = _s3_settings(store_options)
    if store_options.get(options.S3_PATH_STYLE) == "false":
        config["virtual_hosted_style_request"] = True
    endpoint = config.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
    client: Any = {"allow_http": endpoint.startswith("http://"), "timeout": timedelta(seconds=30)}
    made: Any = S3Store(bucket, config=config, client_options=client, retry_config=retry)  # type: ignore[arg-type]
    return made  # type: ignore[no-any-return]


def _s3_settings(store_options: StoreOptions) -> dict[str, str]:
    """What the options say, and the profile of what they leave open.

    Credentials are all of one place: a session token of the profile makes keys of the options
    invalid.
    """
    has_keys = bool(store_options.get(options.S3_ACCESS_KEY))
    config = _profile(store_options.get(options.S3_PROFILE), with_keys=not has_keys)
    for option, name in (
        (options.S3_ACCESS_KEY, "access_key_id"),
        (options.S3_SECRET_KEY, "secret_access_key"),
        (options.S3_SESSION_TOKEN, "session_token"),
        (options.S3_REGION, "region"),
        (options.S3_ENDPOINT, "endpoint"),
    ):
        value = store_options.get(option)
        if value:
            config[name] = value
    return config


@lru_cache(maxsize=16)
def _s3_client(process: int, store_options: StoreOptions, access: StoreAccess) -> Any:
    """A client of boto3 per process and job; its methods may be called by several threads."""
    del process
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        message = f"file sinks on S3 need the package boto3: pip install '{_EXTRA}'"
        raise ConfigurationError(message) from error
    by_path = store_options.get(options.S3_PATH_STYLE) != "false"
    has_keys = bool(store_options.get(options.S3_ACCESS_KEY))
    # Other profiles than those with keys are for boto3 to read.
    of_profile = _s3_settings(store_options) if has_keys else {}
    try:
        session = boto3.session.Session(
            aws_access_key_id=store_options.get(options.S3_ACCESS_KEY) or None,
            aws_secret_access_key=store_options.get(options.S3_SECRET_KEY) or None,
            aws_session_token=store_options.get(options.S3_SESSION_TOKEN) or None,
            region_name=store_options.get(options.S3_REGION) or of_profile.get("region"),
            profile_name=None if has_keys else store_options.get(options.S3_PROFILE) or None,
        )
        client = session.client(
            "s3",
            endpoint_url=store_options.get(options.S3_ENDPOINT) or of_profile.get("endpoint"),
            region_name=session.region_name or "us-east-1",
            config=Config(
                retries={"mode": "standard", "total_max_attempts": 10},
                s3={"addressing_style": "path" if by_path else "auto"},
                connect_timeout=5,
                read_timeout=30,
            ),
        )
    except BotoCoreError as error:
        message = f"no client of S3 can be made: {error}"
        raise ConfigurationError(message) from None
    client.meta.events.register("before-send.s3", partial(_count_request, access.requests))
    return client


#: Operation of boto3 -> kind of request.
_OPERATIONS: Final = {
    "HeadObject": "get",
    "GetObject": "get",
    "PutObject": "put",
    "CopyObject": "put",
    "ListMultipartUploads": "list",
}


def _count_request(requests: Requests, request: Any, event_name: str, **_: Any) -> None:
    operation = event_name.rpartition(".")[2]
    sent = int(request.headers.get("Content-Length", 0)) if operation == "UploadPart" else 0
    requests.add(_OPERATIONS.get(operation, "multipart"), sent=sent)


def _profile(name: str, *, with_keys: bool = True) -> dict[str, str]:
    """Return keys and region of a profile of the AWS command line.

    Args:
        name: of the profile; empty: that of ``AWS_PROFILE``, if it is set.
        with_keys: whether keys and session token are wanted.

    Raises:
        ConfigurationError: there is no such profile, or it has no keys.
    """
    wanted = name or os.environ.get("AWS_PROFILE", "")
    if not wanted or (not name and "AWS_ACCESS_KEY_ID" in os.environ):
        return {}
    home = Path.home() / ".aws"
    files = {
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials")): wanted,
        os.environ.get("AWS_CONFIG_FILE", str(home / "config")): f"profile {wanted}",
    }
    found: dict[str, str] = {}
    for path, section in files.items():
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(path)
        except ProfileError as error:
            message = f"{path} cannot be read as a file of profiles: {type(error).__name__}"
            raise ConfigurationError(message) from None
        for each in (section, wanted):
            if parser.has_section(each):
                found = {**parser[each], **found}
    names = {
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
        "region": "region",
        "endpoint_url": "endpoint",
    }
    chosen = {names[key]: value for key, value in found.items() if key in names}
    if not with_keys:
        return {key: chosen[key] for key in ("region", "endpoint") if key in chosen}
    if "secret_access_key" not in chosen:
        message = (
            f"the profile {wanted!r} has no access key in {' or '.join(files)}. Profiles with roles"
            " or single sign-on are not read: `aws configure export-credentials --format env`"
            " prints environment variables for them"
        )
        raise ConfigurationError(message)
    return chosen


def _credentials_from(scheme: str) -> str:
    if scheme == "s3":
        return (
            f"Set {options.S3_ACCESS_KEY.key} and {options.S3_SECRET_KEY.key},"
            f" {options.S3_PROFILE.key}, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the"
            " environment, or give the machine a role"
        )
    if scheme == "gs":
        return "Set GOOGLE_APPLICATION_CREDENTIALS, or give the machine a service account"
    return (
        "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or give the machine an"
        " identity"
    )


def _code_of(error: Exception) -> str | None:
    found = _CODE.search(str(error))
    return None if found is None else found[1] or found[2]


def _status_of(text: str) -> str | None:
    found = _STATUS.search(text)
    return None if found is None else found[1]


def _first_line(text: str) -> str:
    return text.partition("\n")[0].strip()
