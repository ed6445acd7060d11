"""Opening an object store, its conditional writes, and errors that say what is wrong."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from tests.objects.server import KEY, SECRET
from tests.ports import free_port

from millstream.checkpoint.object_storage import ObjectStorage
from millstream.checkpoint.storages import open_storage
from millstream.common import Configuration
from millstream.errors import ConfigurationError, ObjectStoreError
from millstream.graph.job_files import JobFiles
from millstream.object_stores import _WRITER, ObjectStore, StoreOptions, _s3_settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects.server import S3Server


@pytest.fixture
def storage(bucket: str) -> ObjectStorage:
    return ObjectStorage(f"{bucket}/a/b")


def test_put_if_absent_keeps_the_first(storage: ObjectStorage) -> None:
    assert storage.put_if_absent("log/1", b"one")
    assert not storage.put_if_absent("log/1", b"two")
    assert storage.read("log/1") == b"one"
    assert list(storage.list_names("")) == ["log/1"]


def test_of_concurrent_puts_one_wins(storage: ObjectStorage) -> None:
    together = Barrier(4)

    def put(writer: int) -> list[bool]:
        copy = pickle.loads(pickle.dumps(storage))
        together.wait()
        return [copy.put_if_absent(f"log/{n}", str(writer).encode()) for n in range(20)]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(put, range(4)))
    for number in range(20):
        winners = [writer for writer in range(4) if results[writer][number]]
        assert [str(each).encode() for each in winners] == [storage.read(f"log/{number}")]


def test_a_put_whose_answer_was_lost_is_known_by_its_writer(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library sends the request again, and is refused by what it has written itself."""
    import obstore

    put = obstore.put

    def twice(*arguments: object, **more: object) -> object:
        put(*arguments, **more)  # type: ignore[arg-type]
        return put(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("obstore.put", twice)
    assert storage.put_if_absent("log/1", b"same")
    monkeypatch.undo()
    assert not storage.put_if_absent("log/1", b"same")


def test_write_replaces_and_reads_tell_what_is_missing(storage: ObjectStorage) -> None:
    storage.write("x/y", b"one")
    storage.write("x/y", b"two")
    assert storage.read("x/y") == b"two"
    assert storage.exists("x/y")
    assert not storage.exists("x")
    with pytest.raises(FileNotFoundError, match="has no object x/z"):
        storage.read("x/z")


def test_list_names_is_sorted_and_below_the_prefix(storage: ObjectStorage) -> None:
    for name in ("state/b/2", "state/a%2Eb/1 c", "state/c", "stateful/x", "log/1"):
        storage.write(name, b"")
    assert list(storage.list_names("state")) == ["state/a%2Eb/1 c", "state/b/2", "state/c"]
    assert list(storage.list_names("state/")) == list(storage.list_names("state"))
    assert list(storage.list_names("nowhere")) == []


@pytest.mark.parametrize("size", [0, 1000, 17 << 20])
def test_files_travel_both_ways(size: int, storage: ObjectStorage, tmp_path: Path) -> None:
    content = bytes(range(250)) * (size // 250)
    (tmp_path / "local").write_bytes(content)
    storage.upload(tmp_path / "local", "state/u/1")
    storage.download("state/u/1", tmp_path / "deep" / "back")
    assert (tmp_path / "deep" / "back").read_bytes() == content
    with storage.local_file("state/u/1") as path:
        assert path.read_bytes() == content
    assert not path.exists()
    storage.delete(["state/u/1", "state/u/none"])
    with pytest.raises(FileNotFoundError):
        storage.download("state/u/1", tmp_path / "back")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "", "a//b", "./x"])
def test_names_cannot_leave_the_prefix(storage: ObjectStorage, name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        storage.write(name, b"")


def test_blobs_are_signed(bucket: str, tmp_path: Path) -> None:
    from millstream.checkpoint.local_storage import seal_of
    from millstream.errors import SignatureError

    key = tmp_path / "key"
    key.write_text("0" * 64)
    key.chmod(0o600)
    signed = open_storage(bucket, seal=seal_of(str(key)))
    signed.bind("job")
    signed.write("log/1", b"content")
    assert signed.read("log/1") == b"content"
    with pytest.raises(SignatureError, match=f"log/1 in {bucket}"):
        open_storage(bucket).read("log/1")


def test_credentials_come_from_options_and_travel_unseen(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3_server.environment():
        monkeypatch.delenv(name)
    configuration = Configuration(dict(s3_server.options()))
    storage = open_storage(bucket, store_options=StoreOptions.of(configuration))
    storage.probe()
    pickled = pickle.dumps(storage)
    assert SECRET.encode() not in pickled
    assert KEY.encode() not in pickled
    copy = pickle.loads(pickled)
    copy.write("x", b"1")
    assert storage.read("x") == b"1"
    for text in (repr(storage), repr(copy), storage.location, repr(StoreOptions.of(configuration))):
        assert SECRET not in text
        assert KEY not in text


def test_options_travel_with_the_files_of_a_job(s3_server: S3Server, bucket: str) -> None:
    """In a process of its own, as a worker: a storage alone finds no credentials there."""
    found = StoreOptions.of(Configuration(dict(s3_server.options())))
    storage = pickle.dumps(open_storage(bucket, store_options=found))
    files = pickle.dumps(JobFiles(store_options=found))
    program = (
        "import pickle, sys\n"
        f"storage = pickle.loads({storage!r})\n"
        "try:\n"
        "    storage.write('x', b'1')\n"
        "except Exception as error:\n"
        "    print(error)\n"
        f"pickle.loads({files!r})\n"
        "storage.write('x', b'1')\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment, check=True
    )
    assert "its credentials were not sent to this process" in done.stdout.decode()
    assert s3_server.content(bucket.removeprefix("s3://"), "x") == b"1"


def test_keys_of_flinks_options_mean_the_same() -> None:
    configuration = Configuration({"s3.secret.key": "s", "s3.path-style-access": "false"})
    found = dict(StoreOptions.of(configuration).values)
    assert found == {"s3.secret-key": "s", "s3.path.style.access": "false"}


def test_a_profile_gives_keys_and_region(
    s3_server: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3_server.environment():
        monkeypatch.delenv(name)
    credentials, config = tmp_path / "credentials", tmp_path / "config"
    credentials.write_text(f"[p]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    config.write_text(f"[profile p]\nregion = eu-west-1\nendpoint_url = {s3_server.endpoint}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    open_storage(bucket, store_options=StoreOptions((("millstream.s3.profile", "p"),))).probe()
    with monkeypatch.context() as patch:
        patch.setenv("AWS_PROFILE", "p")
        open_storage(f"{bucket}/x").probe()
    wrong = open_storage(bucket, store_options=StoreOptions((("millstream.s3.profile", "q"),)))
    with pytest.raises(ConfigurationError, match="the profile 'q' has no access key in"):
        wrong.check()


def test_keys_of_options_do_not_mix_with_those_of_a_profile(
    s3_server: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3_server.environment():
        monkeypatch.delenv(name)
    credentials = tmp_path / "credentials"
    credentials.write_text(
        "[p]\naws_access_key_id = other\naws_secret_access_key = other\n"
        f"aws_session_token = other\nregion = eu-west-1\nendpoint_url = {s3_server.endpoint}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    given = StoreOptions(
        (
            ("millstream.s3.profile", "p"),
            ("s3.access-key", KEY),
            ("s3.secret-key", SECRET),
        )
    )
    settings = _s3_settings(given)
    assert settings == {
        "access_key_id": KEY,
        "secret_access_key": SECRET,
        "region": "eu-west-1",
        "endpoint": s3_server.endpoint,
    }
    open_storage(bucket, store_options=given).probe()
    client = ObjectStore(bucket, given).s3_client()
    found = client._request_signer._credentials
    assert (found.access_key, found.secret_key, found.token) == (KEY, SECRET, None)
    assert (client.meta.region_name, client.meta.endpoint_url) == (
        "eu-west-1",
        s3_server.endpoint,
    )


def test_metadata_has_names_that_every_store_takes() -> None:
    assert _WRITER.isidentifier()  # as Azure wants it


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("s3://", "is not of the form s3://bucket/path"),
        ("s3://bucket/a?b=c", "is not of the form s3://bucket/path"),
        ("s3://key:word@bucket/a", r"must not contain credentials \(s3://\*\*\*\*@bucket\)"),
        ("hdfs://host/a", "HDFS is not supported: its client library"),
        ("ftp://host/a", "this scheme is not supported"),
    ],
)
def test_malformed_uris_are_refused(location: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        open_storage(location)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "form"),
    [
        ("s3a://b/x/", "s3://b/x"),
        ("S3://b", "s3://b"),
        ("gs://b/a%20b", "gs://b/a b"),
        ("az://c/x", "az://c/x"),
        ("abfs://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
    ],
)
def test_locations_have_one_form(location: str, form: str) -> None:
    assert ObjectStore(location).location == form


def test_a_bucket_that_is_missing_is_named(bucket: str) -> None:
    storage = open_storage("s3://no-such-bucket/x")
    steps = (
        storage.check,
        storage.probe,
        lambda: storage.read("x"),
        lambda: list(storage.list_names("")),
        lambda: storage.put_if_absent("x", b""),
        lambda: storage.delete(["x"]),
    )
    for step in steps:
        with pytest.raises(ObjectStoreError, match="there is no bucket 'no-such-bucket'"):
            step()


def test_a_server_that_is_missing_is_named_soon() -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    found = Configuration({"s3.endpoint": endpoint, "s3.access-key": KEY, "s3.secret-key": SECRET})
    storage = open_storage("s3://bucket", store_options=StoreOptions.of(found))
    with pytest.raises(ObjectStoreError, match=f"no connection to the S3 server at {endpoint}"):
        storage.check()


def test_workers_of_a_process_that_has_used_a_store_are_not_forked_from_it(bucket: str) -> None:
    program = (
        "import millstream\n"
        "from millstream.checkpoint.storages import open_storage\n"
        "from millstream.fork_safety import has_threads_of_libraries\n"
        "before = has_threads_of_libraries()\n"
        f"open_storage({bucket!r}).probe()\n"
        "print(before, has_threads_of_libraries())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, check=True
    )
    assert done.stdout.decode().split() == ["False", "True"]
