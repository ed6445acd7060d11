"""Who can write the checkpoint directory cannot run code in a job that has a key."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from millstream.checkpoint import JobIdentity, LocalStorage, ManifestLog
from millstream.checkpoint.local_storage import HmacSeal, is_sealed
from millstream.checkpoint.model import digest_of
from millstream.cli.main import main
from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.connectors.commit_protocols.staged_values import staging_directory
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors import TwoPhaseCommitSinkFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import CheckpointError, ConfigurationError, SignatureError
from millstream.functions.watermark_strategy import TimestampAssigner
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.connectors.commit_protocols.two_phase import SinkContext

LAST: Final = 40


class Evil:
    """Unpickling it runs code: it makes a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.proof,))


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Counting(KeyedProcessFunction):
    """Value state, and event-time timers that wait."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value + 20)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[int]:
        yield 1000 + timestamp


class Lines(TwoPhaseCommitSinkFunction[int, str]):
    """A transaction is a hidden file; its handle is noted, pickled, in the checkpoint directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.lines: list[str] = []

    def begin_transaction(self) -> str:
        assert self.writer_context is not None
        self.lines = []
        return f"{self.writer_context.epoch}-{self.writer_context.attempt}".replace("/", "_")

    def invoke(self, transaction: str, value: int, context: SinkContext) -> None:
        self.lines.append(f"{value}\n")

    def pre_commit(self, transaction: str) -> None:
        (self.directory / f".{transaction}").write_text("".join(self.lines))

    def commit(self, transaction: str) -> None:
        (self.directory / f".{transaction}").rename(self.directory / transaction)

    def abort(self, transaction: str) -> None:
        (self.directory / f".{transaction}").unlink(missing_ok=True)

    def recover_and_commit(self, transaction: str) -> None:
        if not (self.directory / transaction).exists():
            self.commit(transaction)


class Job:
    """The job in a directory: run some of its epochs, look at its output."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkpoints = directory / "checkpoints"
        self.output = directory / "output"
        self.output.mkdir()
        self.key_file = directory / "key"
        self.proof = directory / "evil code ran"

    def run(self, epochs: int, *, key: bool, backend: str = "hashmap") -> None:
        configuration = Configuration()
        if key:
            configuration.set_string("millstream.checkpoint.hmac-key-file", str(self.key_file))
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(1)
        stamped = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
        numbers = env.from_collection(list(range(LAST)), Types.LONG()).uid("numbers")
        keyed = numbers.assign_timestamps_and_watermarks(stamped).key_by(lambda n: n % 3)
        counted = keyed.process(Counting(), Types.LONG()).uid("counting")
        counted.sink_to(Lines(self.output)).uid("out")
        cluster = MiniCluster(
            env.get_job_graph("signed"),
            self.checkpoints,
            limits=[5] * 100,
            state_backend=backend,
        )
        try:
            cluster.run(epochs)
        finally:
            cluster.coordinator.close()

    def lines(self) -> list[int]:
        return sorted(
            int(line)
            for path in self.output.glob("[!.]*")
            for line in path.read_text().splitlines()
        )

    def require_all_signed(self) -> None:
        """State files are named in manifests, local copies are not part of the checkpoint."""
        for path in self.checkpoints.rglob("*"):
            name = path.relative_to(self.checkpoints).as_posix()
            if path.is_file() and not name.startswith(("state/", "local/")):
                assert is_sealed(path.read_bytes()), name

    def newest(self) -> Path:
        return max((self.checkpoints / "log").iterdir())

    def lose_local_copies(self) -> None:
        shutil.rmtree(self.checkpoints / "local", ignore_errors=True)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path)
    write_key(made.key_file)
    return made


def write_key(path: Path, content: bytes = b"0123456789abcdef" * 4) -> None:
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(content)


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a version of the log as an attacker would: a right checksum, the old signature."""
    body, line, signature = path.read_bytes().partition(b"\nmillstream-hmac-sha256 ")
    value = json.loads(body)
    change(value)
    del value["checksum"]
    text = json.dumps(value, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    forged = f'{text[:-1]},"checksum":"{checksum}"}}\n'.encode()
    path.write_bytes(forged.rstrip(b"\n") + line + signature if line else forged)


def pickled(job: Job) -> bytes:
    return pickle.dumps(Evil(job.proof))


def forge_committable(job: Job) -> None:
    def change(value: dict[str, Any]) -> None:
        (ack,) = value["manifest"]["operators"]["out"]
        ack["committables"] = [base64.b64encode(pickled(job)).decode()]

    rewrite(job.newest(), change)


def forge_operator_state(job: Job) -> None:
    """What an operator keeps, and what the watermark generator of a split does."""

    def change(value: dict[str, Any]) -> None:
        evil = base64.b64encode(pickled(job)).decode()
        for acks in value["manifest"]["operators"].values():
            for ack in acks:
                ack["operator_states"] = {
                    "generator": {"kind": "union", "count": 1, "elements": [evil]}
                }
        for splits in value["manifest"]["splits"].values():
            for split in splits.values():
                split["generator"] = evil

    rewrite(job.newest(), change)


def forge_state_file(job: Job) -> None:
    """Each value of keyed state is evil, timers among them; digest and size are right."""

    def change(value: dict[str, Any]) -> None:
        for acks in value["manifest"]["operators"].values():
            for file in [f for a in acks for f in (a["state"] or {"files": {}})["files"].values()]:
                path = job.checkpoints / file["remote"]
                content = evil_entries(path, pickled(job))
                path.unlink()
                path.write_bytes(content)
                file["size"], file["digest"] = digest_of([content])

    rewrite(job.newest(), change)
    job.lose_local_copies()


def evil_entries(path: Path, evil: bytes) -> bytes:
    with pa.OSFile(str(path), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    keys = table.column("key").to_pylist()
    assert any(key[:1] == b"T" for key in keys), "timers wait"
    entries = zip(keys, table.column("value").to_pylist(), strict=True)
    # All but what is said of the store itself, which is not pickled.
    values = [value if key[:1] == b"M" else evil for key, value in entries]
    columns = [pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=table.schema))
    return bytes(sink.getvalue())


def plant_transaction(job: Job) -> None:
    """A note of a transaction that no manifest names: a new run aborts it."""
    job_id = json.loads((job.checkpoints / "job.json").read_bytes().partition(b"\nmill")[0])[
        "job_id"
    ]
    directory = job.checkpoints / staging_directory(job_id, "out")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "g1-000000-0-evil.transaction").write_bytes(pickled(job))


ATTACKS = [forge_committable, forge_operator_state, forge_state_file, plant_transaction]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_evil_content_with_right_checksums(job: Job, attack: Callable[[Job], None]) -> None:
    job.run(3, key=True)
    attack(job)
    with pytest.raises(SignatureError):
        job.run(3, key=True)
    assert not job.proof.exists()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_the_same_content_runs_without_a_key(job: Job, attack: Callable[[Job], None]) -> None:
    """So the test before shows what the key does; without it the directory's mode must."""
    job.run(3, key=False)
    attack(job)
    try:
        job.run(3, key=False)
    except Exception as error:  # noqa: BLE001 - after the evil code has run, anything may happen
        print(error)
    assert job.proof.exists()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_signed_job_goes_on_and_gives_the_same_result(job: Job, backend: str) -> None:
    for _ in range(100):
        job.run(2, key=True, backend=backend)
        job.lose_local_copies()
        if json.loads(job.newest().read_bytes().partition(b"\nmill")[0])["kind"] == "open":
            break
    assert job.lines() == [*range(LAST), *range(1020, 1020 + LAST)]


def test_a_state_file_that_does_not_fit_its_digest(job: Job) -> None:
    """The manifest is whole; also where the local copy would be a link to the file changed."""
    job.run(3, key=True)
    copies = {path.stat().st_ino for path in (job.checkpoints / "local").rglob("*.arrow")}
    for path in (job.checkpoints / "state").rglob("*"):
        if path.is_file():
            assert path.stat().st_ino not in copies
            path.write_bytes(evil_entries(path, pickled(job)))
    job.run(1, key=True)  # from the local copy
    assert not job.proof.exists()
    job.lose_local_copies()
    for path in (job.checkpoints / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(evil_entries(path, pickled(job)))
    with pytest.raises(CheckpointError, match=r"state file .* is corrupt"):
        job.run(1, key=True)
    assert not job.proof.exists()


def test_blobs_of_other_names_and_jobs_are_refused(job: Job, tmp_path: Path) -> None:
    job.run(3, key=True)
    newest = job.newest()
    later = newest.with_name(f"{int(newest.stem) + 1:020d}.json")
    shutil.copy(newest, later)
    with pytest.raises(SignatureError, match=later.name):
        job.run(1, key=True)
    later.unlink()
    (tmp_path / "other").mkdir()
    other = Job(tmp_path / "other")
    shutil.copy(job.key_file, other.key_file)
    other.run(3, key=True)
    splits = next((other.checkpoints / "sources").rglob("*.json"))
    shutil.copy(splits, job.checkpoints / splits.relative_to(other.checkpoints))
    with pytest.raises(SignatureError, match="sources/"):
        job.run(1, key=True)


def test_with_and_without_a_key(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.run(3, key=False)
    with pytest.raises(SignatureError) as unsigned:
        job.run(1, key=True)
    command = str(unsigned.value).split("`")[1]
    assert command.startswith("millstream checkpoints ")
    assert main(command.split()[1:]) == 0
    assert main(command.split()[1:]) == 0, "it may be done again"
    job.require_all_signed()
    with pytest.raises(SignatureError, match=r"is signed\. Give the key.*hmac-key-file"):
        job.run(1, key=False)
    job.run(100, key=True)
    job.require_all_signed()
    assert job.lines() == [*range(LAST), *range(1020, 1020 + LAST)]
    capsys.readouterr()
    place = str(job.checkpoints)
    key = ["--hmac-key-file", str(job.key_file)]
    assert main(["checkpoints", place, *key]) == 0
    assert "Job 'signed'" in capsys.readouterr().out
    for action in ("inspect", "verify"):
        assert main(["checkpoints", place, *key, action]) == 0
        assert main(["checkpoints", place, action]) == 1
    assert "job.json in" in capsys.readouterr().err
    forge_committable(job)
    assert main(["checkpoints", place, *key]) == 1
    assert "was not signed with the key" in capsys.readouterr().err
    write_key(job.key_file, b"another key, of which nobody can say that it is too short")
    assert main(["checkpoints", place, "sign", *key]) == 1
    assert "was not signed with the key" in capsys.readouterr().err


def test_what_is_damaged_is_not_signed(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.run(3, key=False)
    newest = job.newest()
    whole = newest.read_bytes()

    def weaker(value: dict[str, Any]) -> None:
        for acks in value["manifest"]["operators"].values():
            for file in [f for a in acks for f in (a["state"] or {"files": {}})["files"].values()]:
                content = (job.checkpoints / file["remote"]).read_bytes()
                file["digest"] = f"crc32:{zlib.crc32(content):08x}"

    sign = ["checkpoints", str(job.checkpoints), "sign", "--hmac-key-file", str(job.key_file)]
    rewrite(newest, weaker)
    assert main(sign) == 1
    assert "its digest is of an unknown kind, 'crc32'" in capsys.readouterr().err
    newest.write_bytes(whole[:-9])
    assert main(sign) == 1
    assert "damaged" in capsys.readouterr().err
    newest.write_bytes(whole)
    assert main(sign) == 0


def test_the_key_is_not_sent_or_shown(job: Job) -> None:
    job.run(1, key=True)
    storage = LocalStorage(job.checkpoints, fsync=False, seal=HmacSeal(str(job.key_file)))
    assert JobIdentity.load(storage) is not None
    key = job.key_file.read_bytes()
    assert key not in pickle.dumps(storage)
    assert key.decode() not in repr(storage)
    assert key.decode() not in repr(storage._seal)
    in_worker: LocalStorage = pickle.loads(pickle.dumps(storage))
    in_worker.write("sinks/x", b"y")
    assert storage.read("sinks/x") == b"y"
    assert ManifestLog(in_worker).latest() is not None


def test_keys_that_are_no_secrets(job: Job) -> None:
    for mode in (0o640, 0o604):
        job.key_file.chmod(mode)
        with pytest.raises(ConfigurationError, match=rf"in reach of other users \(mode {mode:04o}"):
            job.run(1, key=True)
    write_key(job.key_file, b"short\n")
    with pytest.raises(ConfigurationError, match="has 5 bytes, it needs 32 at least"):
        job.run(1, key=True)
    job.key_file.unlink()
    with pytest.raises(ConfigurationError, match=r"cannot be read on this machine.*openssl rand"):
        job.run(1, key=True)
    assert not job.checkpoints.exists()


def test_the_transactions_command_takes_the_key(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    """The directory is read before the brokers are asked."""
    job.run(1, key=True)
    place = ["--bootstrap-servers", "127.0.0.1:1", "--checkpoint-dir", str(job.checkpoints)]
    assert main(["transactions", "list", *place]) == 1
    assert "is signed. Give the key" in capsys.readouterr().err
    write_key(job.key_file, os.urandom(64))
    assert main(["transactions", "list", *place, "--hmac-key-file", str(job.key_file)]) == 1
    assert "was not signed with the key" in capsys.readouterr().err
