"""Jobs that an object store does not fit, refused before anything is started or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.ports import free_port

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, ObjectStoreError
from millstream.spark import DataFrameSink

if TYPE_CHECKING:
    from tests.objects.server import S3Server


def environment(checkpoints: str, **more: str) -> StreamExecutionEnvironment:
    configuration = Configuration({"execution.checkpointing.dir": checkpoints, **more})
    configuration.set_string("execution.target", "local")
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def test_a_bucket_that_is_missing(bucket: str) -> None:
    env = environment("s3://no-such-bucket/x")
    env.from_collection([1]).print()
    with pytest.raises(ObjectStoreError, match="there is no bucket 'no-such-bucket'"):
        env.execute("job")


def test_a_server_that_is_missing() -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    env = environment(
        "s3://bucket/x", **{"s3.endpoint": endpoint, "s3.access-key": "a", "s3.secret-key": "b"}
    )
    env.from_collection([1]).print()
    with pytest.raises(ObjectStoreError, match=f"no connection to the S3 server at {endpoint}"):
        env.execute("job")


def test_dataframes_of_spark(bucket: str, s3_server: S3Server) -> None:
    env = environment(f"{bucket}/x")
    env.get_configuration().set_string("execution.target", "spark")
    env.from_collection([1]).sink_to(DataFrameSink(lambda frame, epoch: None))
    with pytest.raises(ConfigurationError, match="need checkpoints on a file system"):
        env.execute("job")
    assert s3_server.keys(bucket.removeprefix("s3://")) == []
