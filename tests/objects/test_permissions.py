"""Wrong credentials and missing permissions, on a server that checks both (moto with IAM)."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.objects.server import KEY, REGION, SECRET, S3Server

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink
from millstream.errors import ObjectStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: As documented in ``docs/how-to/object-stores.md``.
OF_BUCKET: Final = ["s3:ListBucket", "s3:ListBucketMultipartUploads"]
OF_OBJECTS: Final = [
    *("s3:GetObject", "s3:PutObject", "s3:DeleteObject"),
    *("s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"),
]


class Guarded:
    """A server that accepts only users whose policies allow what they ask for."""

    def __init__(self) -> None:
        import boto3

        self.server = S3Server()
        self.bucket = self.server.new_bucket()
        self._iam: Any = boto3.client(
            "iam",
            endpoint_url=self.server.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )
        self._users = 0

    def user(self, lacking: str = "") -> dict[str, str]:
        """Options of a new user, who has the documented permissions but one."""
        self.enforce(False)
        self._users += 1
        name = f"user-{self._users}"
        self._iam.create_user(UserName=name)
        key = self._iam.create_access_key(UserName=name)["AccessKey"]
        # moto judges the deletion of several objects by the bucket.
        of_bucket = [each for each in (*OF_BUCKET, "s3:DeleteObject") if each != lacking]
        of_objects = [each for each in OF_OBJECTS if each != lacking]
        arn = f"arn:aws:s3:::{self.bucket}"
        statements = [
            {"Effect": "Allow", "Action": of_bucket, "Resource": arn},
            {"Effect": "Allow", "Action": of_objects, "Resource": f"{arn}/jobs/*"},
        ]
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self._iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=policy)
        self.enforce(True)
        return self.options(key["AccessKeyId"], key["SecretAccessKey"])

    def options(self, key: str, secret: str) -> dict[str, str]:
        """Options of a job with these credentials."""
        return {**self.server.options(), "s3.access-key": key, "s3.secret-key": secret}

    def enforce(self, on: bool) -> None:
        """Check permissions, or let everybody do everything."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        connection.request("POST", "/moto-api/reset-auth", "0" if on else "inf")
        assert connection.getresponse().status == http.client.OK
        connection.close()

    def objects(self) -> list[str]:
        """The keys of all of them."""
        self.enforce(False)
        return self.server.keys(self.bucket)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    made = Guarded()
    yield made
    made.server.stop()


def execute(guarded: Guarded, path: str, options: dict[str, str], sink: str = "") -> None:
    location = f"s3://{guarded.bucket}"
    settings = {
        "execution.target": "local",
        "execution.checkpointing.dir": f"{location}/{path}/checkpoints",
        **options,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    records = env.from_collection([(1, "a"), (2, "b")])
    records.sink_to(FileSink.json_lines(f"{location}/{sink or path}/out"))
    env.execute("job")


def test_the_documented_permissions_are_enough(guarded: Guarded) -> None:
    execute(guarded, "jobs/enough", guarded.user())
    found = guarded.objects()
    assert [each for each in found if each.startswith("jobs/enough/out/part-")]
    assert not [each for each in found if ".probe" in each or ".pending" in each]


@pytest.mark.parametrize(
    ("lacking", "what"),
    [
        ("s3:ListBucket", "cannot list objects"),
        ("s3:GetObject", r"cannot read \.probe-"),
        ("s3:PutObject", r"cannot write \.probe-"),
        ("s3:DeleteObject", "cannot delete objects"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_written(
    lacking: str, what: str, guarded: Guarded
) -> None:
    user = guarded.user(lacking)
    before = guarded.objects()
    guarded.enforce(True)
    with pytest.raises(ObjectStoreError, match=rf"{what}.*lack permission to .*\({lacking}\)"):
        execute(guarded, "jobs/x", user)
    after = [each for each in guarded.objects() if each not in before]
    # Who may not delete leaves what the probe has written.
    assert [each for each in after if "/.probe-" not in each] == []
    assert len(after) == (1 if lacking == "s3:DeleteObject" else 0)


def test_another_path_than_that_of_the_policy(guarded: Guarded) -> None:
    user = guarded.user()
    before = guarded.objects()
    guarded.enforce(True)
    with pytest.raises(ObjectStoreError, match=r"jobs-of-others/checkpoints: cannot write .probe"):
        execute(guarded, "jobs-of-others", user)
    assert guarded.objects() == before


@pytest.mark.parametrize("wrong", ["key", "secret"])
def test_wrong_credentials(wrong: str, guarded: Guarded) -> None:
    right = guarded.user()
    key = "AKIAIOSFODNN7EXAMPLE" if wrong == "key" else right["s3.access-key"]
    secret = "secret/of/nobody" if wrong == "secret" else right["s3.secret-key"]
    before = guarded.objects()
    guarded.enforce(True)
    with pytest.raises(ObjectStoreError, match="does not accept the credentials") as caught:
        execute(guarded, "jobs/y", guarded.options(key, secret))
    assert secret not in str(caught.value)
    assert "Set s3.access-key and s3.secret-key" in str(caught.value)
    assert guarded.objects() == before
