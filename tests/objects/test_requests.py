"""Requests to object stores, counted on driver and workers, and options of each job and bucket."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.objects.server import KEY, REGION, SECRET

from millstream.checkpoint.inspect import list_checkpoints
from millstream.checkpoint.storages import open_storage
from millstream.cli.checkpoints_command import show_checkpoints
from millstream.common import Configuration, Encoder, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink, FileSource
from millstream.errors import ConfigurationError, MillstreamError
from millstream.object_stores import REQUEST_KINDS, SENT_BYTES, ObjectStore, StoreOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.objects.server import S3Server


def copy_lines(
    source: str,
    target: str,
    more: dict[str, str],
    before: Callable[[], object] = lambda: None,
) -> None:
    """Run a job that copies lines of text; ``before`` is called when it is submitted."""
    configuration = Configuration({"execution.target": "local", **more})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    lines = env.from_source(FileSource.text(source), WatermarkStrategy.no_watermarks(), "lines")
    sink = FileSink.for_row_format(target, Encoder.simple_string_encoder()).build()
    lines.map(str, Types.STRING()).sink_to(sink)
    before()
    env.execute("copy lines")


def kind_of(line: str) -> str:
    """The kind of a request in the log of the server."""
    method, _, rest = line.partition(" ")
    if "uploads" in rest or "uploadId=" in rest:
        return "list" if method == "GET" else "multipart"
    if method in {"POST", "DELETE"}:
        return "delete"
    if method == "GET" and "list-type=2" in rest:
        return "list"
    return "put" if method == "PUT" else "get"


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_checkpoints_have_the_requests_that_the_server_got(
    execution: str, bucket: str, s3_server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    name = bucket.removeprefix("s3://")
    s3_server.client(name).put("in/lines.txt", b"".join(b"%d\n" % n for n in range(500)))
    before: list[int] = []
    checkpoints = f"{bucket}/checkpoints"
    copy_lines(
        f"{bucket}/in",
        f"{bucket}/out",
        {
            "execution.checkpointing.dir": checkpoints,
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.num-retained": "100",
            "millstream.execution": execution,
        },
        lambda: before.append(len(s3_server.requests(name))),
    )
    requests = s3_server.requests(name)[before[0] :]
    counted: Counter[str] = Counter()
    for summary in list_checkpoints(open_storage(checkpoints)).checkpoints:
        counted.update(summary.requests)
    last = max(n for n, line in enumerate(requests) if re.match(r"PUT \S*/log/\d+", line))
    served = Counter(kind_of(line) for line in requests[:last])
    assert {kind: counted[kind] for kind in REQUEST_KINDS} == {
        kind: served[kind] for kind in REQUEST_KINDS
    }
    assert counted[SENT_BYTES] >= sum(len(str(n)) + 1 for n in range(500))
    show_checkpoints(checkpoints, "list")
    assert "Requests to object stores since the checkpoint before" in capsys.readouterr().out


def test_two_jobs_of_one_process_have_different_credentials(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in s3_server.environment():
        monkeypatch.delenv(variable)
    name = bucket.removeprefix("s3://")
    keys = {each: f"KEY{each.upper()}" for each in ("one", "two")}
    for each in keys:
        s3_server.client(name).put(f"{each}/in/lines.txt", f"{each}\n".encode() * 50)
    before = len(s3_server.authorizations(name))

    def run(each: str) -> None:
        copy_lines(
            f"{bucket}/{each}/in",
            f"{bucket}/{each}/out",
            {
                **s3_server.options(),
                "s3.access-key": keys[each],
                "execution.checkpointing.dir": f"{bucket}/{each}/checkpoints",
            },
        )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, keys))
    used = s3_server.authorizations(name)[before:]
    for each, key in keys.items():
        others = {found for path, found in used if f"{each}/" in path}
        assert others == {key}
    assert {found for _, found in used} == set(keys.values())


def test_a_bucket_has_its_own_options(s3_server: S3Server, bucket: str) -> None:
    name = bucket.removeprefix("s3://")
    given = StoreOptions.of(
        Configuration(
            {
                "s3.endpoint": "http://127.0.0.1:1",
                "s3.access-key": "other",
                "s3.secret-key": "other",
                "s3.session.token": "other",
                f"s3.bucket.{name}.endpoint": s3_server.endpoint,
                f"s3.bucket.{name}.access.key": KEY,
                f"s3.bucket.{name}.secret-key": SECRET,
                f"s3.bucket.{name}.region": REGION,
            }
        )
    )
    ObjectStore(bucket, given).probe()
    assert dict(given.of_bucket(name).values) == {
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key": KEY,
        "s3.secret-key": SECRET,
        "s3.region": REGION,
    }
    assert dict(given.of_bucket("another").values)["s3.session.token"] == "other"
    assert SECRET not in repr(given)


def test_an_unknown_option_of_a_bucket_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown option 's3\.bucket\.b\.colour'"):
        StoreOptions.of(Configuration({"s3.bucket.b.colour": "red"}))


def test_a_source_without_the_options_of_a_job_sees_the_environment_only(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment with credentials lends them to no source that it does not read."""
    for variable in s3_server.environment():
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    name = bucket.removeprefix("s3://")
    s3_server.client(name).put("in/a.csv", b"a,b\n1,2\n")
    source = FileSource.csv(f"{bucket}/in")
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration({"execution.target": "local", **s3_server.options()})
    )
    read = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")
    assert "a" in str(read.get_type())
    with pytest.raises(MillstreamError):
        _ = source.produced_type
