"""File sinks and sources on S3."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError
from tests.objects.file_job import COUNT

from millstream.common import Configuration, Encoder, Types, WatermarkStrategy
from millstream.connectors.files import object_files
from millstream.connectors.files.object_files import ObjectFile, ObjectFileCommitter
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest, WriterContext
from millstream.crash_points import points_of
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink, FileSource
from millstream.errors import ObjectStoreError, PermanentSinkError, SinkError, SourceError
from millstream.object_stores import ObjectStore
from millstream.table import StreamTableEnvironment
from millstream.testing.conformance import check_sink
from millstream.testing.crash import run_once

if TYPE_CHECKING:
    from tests.objects.server import S3Server


def name_of(bucket: str) -> str:
    return bucket.removeprefix("s3://")


def context(generation: int = 1, attempt: str = "a") -> WriterContext:
    return WriterContext("job", "sink", 0, 1, 1, attempt, generation)


def pending(bucket: str, content: bytes, **more: Any) -> tuple[ObjectFile, Any]:
    file = ObjectFile.create(ObjectStore(f"{bucket}/out"), context(**more), "part-1.txt")
    file.stream.write(content)
    return file, file.seal()


def visible(server: S3Server, bucket: str) -> dict[str, bytes]:
    """What a reader that skips hidden names sees."""
    name = name_of(bucket)
    keys = [key for key in server.keys(name) if "/." not in f"/{key}"]
    return {key: server.content(name, key) for key in keys}


def test_the_contract_of_sinks(bucket: str, s3_server: S3Server) -> None:
    """Commits, retries, crashes of processes, replays, other runs and jobs."""
    batches = [
        Batch(Types.STRING(), values=[f"line {number}" for number in range(start, start + 3)])
        for start in (0, 3)
    ]

    def make() -> FileSink:
        return FileSink.for_row_format(f"{bucket}/out", Encoder.simple_string_encoder()).build()

    def read() -> list[str]:
        found = visible(s3_server, bucket).values()
        return sorted(line for each in found for line in each.decode().splitlines())

    check_sink(
        make,
        batches,
        read,
        leftovers=lambda: s3_server.uploads(name_of(bucket)),
    )


@pytest.mark.parametrize("size", [0, 100, 40 << 20])
def test_nothing_is_visible_before_the_commit(size: int, bucket: str, s3_server: S3Server) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    _, committable = pending(bucket, content)
    assert visible(s3_server, bucket) == {}
    assert len(committable["parts"]) == max(1, -(-size // (16 << 20)))
    committer = ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    request = CommitRequest(json.loads(json.dumps(committable)), 1, retried=False)
    for _ in range(2):  # an answer may be lost
        committer.commit([request])
        assert visible(s3_server, bucket) == {"out/part-1.txt": content}
    assert s3_server.uploads(name_of(bucket)) == []
    assert s3_server.keys(name_of(bucket)) == ["out/part-1.txt"]


def test_uploads_that_no_manifest_names_are_aborted(bucket: str, s3_server: S3Server) -> None:
    _, kept = pending(bucket, b"kept")
    pending(bucket, b"orphan", attempt="b")
    pending(bucket, b"of a newer run", generation=3)
    committer = ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    committer.abort_orphans("job", "sink", [kept], 2)
    assert len(s3_server.uploads(name_of(bucket))) == 2
    committer.commit([CommitRequest(kept, 1, retried=True)])
    assert visible(s3_server, bucket) == {"out/part-1.txt": b"kept"}
    file, _ = pending(bucket, b"given up", attempt="c")
    file.discard()
    committer.abort_orphans("another job", "sink", [], 9)
    assert len(s3_server.uploads(name_of(bucket))) == 1


def test_output_that_was_written_by_an_unknown_run_is_not_replaced(
    bucket: str, s3_server: S3Server
) -> None:
    committer = ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    _, first = pending(bucket, b"first")
    committer.commit([CommitRequest(first, 1, retried=False)])
    _, second = pending(bucket, b"second", generation=2)
    with pytest.raises(PermanentSinkError, match="exists already, written by a run that this"):
        committer.commit([CommitRequest(second, 1, retried=True)])
    assert visible(s3_server, bucket) == {"out/part-1.txt": b"first"}
    committer.commit([CommitRequest(second, 1, retried=True, published=False)])
    assert visible(s3_server, bucket) == {
        "out/part-1.txt": b"second",
        "out/part-1-g1.txt": b"first",
    }


def test_an_upload_that_is_gone_does_not_pass_for_committed(
    bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer, name = ObjectFileCommitter(ObjectStore(f"{bucket}/out")), name_of(bucket)
    _, first = pending(bucket, b"first")
    committer.commit([CommitRequest(first, 1, retried=False)])
    _, second = pending(bucket, b"second", generation=2)
    copy = object_files._copy_beside

    def copy_and_abort(*arguments: Any) -> None:
        copy(*arguments)
        for upload in s3_server.uploads(name):
            s3_server.admin().abort_multipart_upload(Bucket=name, **upload)

    monkeypatch.setattr(object_files, "_copy_beside", copy_and_abort)
    with pytest.raises(PermanentSinkError, match=r"cannot be completed \(NoSuchUpload\)"):
        committer.commit([CommitRequest(second, 1, retried=True, published=False)])


def test_a_store_that_does_not_answer_is_an_error_of_the_sink(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer = ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    _, committable = pending(bucket, b"first")

    def fails(*_: object, **__: object) -> None:
        message = "no answer"
        raise ObjectStoreError(message)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete", fails)
        with pytest.raises(SinkError, match="hidden objects of completed uploads: no answer"):
            committer.commit([CommitRequest(committable, 1, retried=False)])
    monkeypatch.setattr(ObjectStore, "list_keys", fails)
    with pytest.raises(SinkError, match=r"cannot list .*: no answer"):
        committer.abort_orphans("job", "sink", [], 2)
    monkeypatch.setattr(ObjectStore, "put", fails)
    with pytest.raises(SinkError, match=r"cannot upload .*: no answer"):
        pending(bucket, b"second", generation=2)


def test_a_completion_that_another_one_holds_up_is_repeated(
    bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer = ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    _, committable = pending(bucket, b"first")
    client = ObjectStore(f"{bucket}/out").s3_client()
    left = 10

    class Busy:
        def complete_multipart_upload(self, **request: Any) -> Any:
            nonlocal left
            if left:
                left -= 1
                error = {"Code": "ConditionalRequestConflict", "Message": "a request is at work"}
                raise ClientError({"Error": error}, "CompleteMultipartUpload")
            return client.complete_multipart_upload(**request)

    monkeypatch.setattr(ObjectStore, "s3_client", lambda _: Busy())
    monkeypatch.setattr(object_files, "_PAUSES", (0, 0, 0, 0))
    for _ in range(2):  # five attempts each
        with pytest.raises(SinkError, match="a request is at work") as raised:
            committer.commit([CommitRequest(committable, 1, retried=False)])
        assert not isinstance(raised.value, PermanentSinkError)
        assert visible(s3_server, bucket) == {}
    committer.commit([CommitRequest(committable, 1, retried=True)])
    assert visible(s3_server, bucket) == {"out/part-1.txt": b"first"}


def test_uploads_that_were_aborted_by_others(bucket: str, s3_server: S3Server) -> None:
    name, committer = name_of(bucket), ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    _, lost = pending(bucket, b"lost")
    for upload in s3_server.uploads(name):
        s3_server.admin().abort_multipart_upload(Bucket=name, **upload)
    with pytest.raises(PermanentSinkError, match="output of checkpoint 1 is lost"):
        committer.commit([CommitRequest(lost, 1, retried=True)])
    committer.commit([CommitRequest(lost, 1, retried=True, confirmed=True)])


def put(server: S3Server, bucket: str, key: str, content: bytes) -> None:
    server.client(name_of(bucket)).put(key, content)


def test_sources_list_and_read_by_ranges(bucket: str, s3_server: S3Server) -> None:
    table = pa.table({"id": list(range(1000)), "name": ["x"] * 1000})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=100)
    put(s3_server, bucket, "in/a/1.parquet", sink.getvalue().to_pybytes())
    put(s3_server, bucket, "in/_hidden/2.parquet", b"none")
    put(s3_server, bucket, "in/.pending/3.parquet", b"none")
    put(s3_server, bucket, "csv/1.csv", b"id,name\n1,a\n2,b\n")
    put(s3_server, bucket, "csv/2.csv.gz", gzip.compress(b"id,name\n3,c\n"))
    parquet = FileSource.parquet(f"{bucket}/in")
    assert [split.id for split in parquet.discover({})] == [f"{bucket}/in/a/1.parquet"]
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration({"execution.target": "local"})
    )
    rows = env.from_source(parquet, WatermarkStrategy.no_watermarks(), "parquet")
    with rows.map(lambda row: row.id, Types.LONG()).execute_and_collect() as results:  # type: ignore[union-attr]
        assert sorted(results) == list(range(1000))
    csv = FileSource.csv(f"{bucket}/csv/")
    rows = env.from_source(csv, WatermarkStrategy.no_watermarks(), "csv")
    with rows.map(lambda row: (row.id, row.name)).execute_and_collect() as results:  # type: ignore[union-attr]
        assert sorted(results) == [(1, "a"), (2, "b"), (3, "c")]
    with pytest.raises(SourceError, match="there is no file or directory"):
        _ = FileSource.csv(f"{bucket}/nothing").produced_type


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_tables_with_credentials_that_are_options(
    execution: str,
    bucket: str,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(s3_server, bucket, "in/1.csv", b"1,a\n2,b\n")
    for name in s3_server.environment():
        monkeypatch.delenv(name)
    settings = {
        "execution.target": "local",
        "millstream.execution": execution,
        "execution.checkpointing.dir": f"{bucket}/checkpoints",
        **s3_server.options(),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    tables = StreamTableEnvironment.create(env)
    for table, path in (("s", "in"), ("t", "out")):
        tables.execute_sql(
            f"CREATE TABLE {table} (id BIGINT, name STRING) WITH ('connector' = 'filesystem',"
            f" 'path' = '{bucket}/{path}', 'format' = 'csv')"
        )
    tables.execute_sql("INSERT INTO t SELECT id * 10, name FROM s").wait()
    found = {key: content for key, content in visible(s3_server, bucket).items() if "out/" in key}
    assert sorted(b"".join(found.values()).splitlines()) == [b"10,a", b"20,b"]
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_jobs_that_are_killed_at_each_step_of_an_upload(
    execution: str, bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    job = Path(__file__).parent / "file_job.py"
    arguments = [f"{bucket}/out", f"{bucket}/checkpoints", execution]
    points = [*points_of("object sink"), ""]
    for number, point in enumerate(points):
        run = run_once(
            [sys.executable, str(job), *arguments],
            directory=tmp_path / str(number),
            crash=f"{point}:{2 if number < 2 else 1}" if point else "",
            deadline=120,
        )
        assert run.killed or not run.exit_code, run.output
        found = visible(s3_server, bucket).items()
        lines = [line for key, each in found if key.startswith("out/") for line in each.split()]
        assert len(lines) == len(set(lines)), point
    assert sorted(map(int, lines)) == list(range(COUNT))
    name = name_of(bucket)
    assert not [key for key in s3_server.keys(name) if ".pending" in key]
    # One may be left whose task died before it was noted.
    assert len(s3_server.uploads(name)) <= 2
