"""A whole job in 200 lines around the real coordinator: planner's log, tasks, state, sink.

It adds up numbers per key.  Epochs, offsets and commits are logged before and after each epoch
as Spark does it, state is incremental (a base and a list of deltas), and output goes to pending
files that the committer renames.  Run as a script it does the job to its end:
``python toy_checkpoint_job.py DIRECTORY [SEED]``.
"""

from __future__ import annotations

import json
import pickle
import random
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.checkpoint import Coordinator, JobIdentity, LocalStorage, OperatorAck, TaskAck
from millstream.checkpoint.commit import CommitRetry
from millstream.checkpoint.model import OperatorRecord, difference, digest_of
from millstream.checkpoint.publish import EpochMetadata
from millstream.contracts.sink import CommitRequest, Committer
from millstream.crash_points import crash_point
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.checkpoint import Manifest
    from millstream.contracts.key_value_store import StateFile, StateHandle

RECORDS = 60
KEYS = 5
PROGRAM = {
    uid: OperatorRecord(uid, kind)
    for uid, kind in {"numbers": "source", "sums": "operator", "out": "sink"}.items()
}


class Killed(BaseException):
    """The process died here (when it does not really die)."""


def expected_output() -> list[tuple[int, int, int]]:
    """(key, number, running sum), in order per key."""
    sums = dict.fromkeys(range(KEYS), 0)
    lines = []
    for number in range(RECORDS):
        key = number % KEYS
        sums[key] += number
        lines.append((key, number, sums[key]))
    return sorted(lines)


def visible_output(directory: Path) -> list[tuple[int, int, int]]:
    """What a reader sees, in order of key, then of epoch and line."""
    lines = []
    for path in sorted((directory / "out").glob("*.jsonl")):
        lines += [tuple(json.loads(line)) for line in path.read_text().splitlines()]
    lines.sort(key=lambda line: line[0])  # stable: order per key stays as written
    return lines


class FileCommitter(Committer):
    """Renames pending files; ``failures`` makes that many commits fail half way."""

    def __init__(self, directory: Path, failures: int = 0) -> None:
        self.directory = directory
        self.failures = failures
        self.retries: list[bool] = []
        self.closed = False

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for number, request in enumerate(requests):
            self.retries.append(request.retried)
            name = request.committable["file"]  # type: ignore[index]
            pending, final = self.directory / "pending" / name, self.directory / "out" / name
            if self.failures and number == len(requests) // 2:
                self.failures -= 1
                message = f"cannot rename {pending}"
                raise SinkError(message)
            if not pending.exists():
                if final.exists() and request.retried:
                    continue
                message = f"{pending} is lost"
                raise AssertionError(message)
            crash_point("file.rename.before")
            pending.rename(final)
            crash_point("file.rename.after")

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[object], generation: int
    ) -> None:
        kept = {committable["file"] for committable in keep}  # type: ignore[index]
        for path in (self.directory / "pending").iterdir():
            if path.name not in kept:
                path.unlink()

    def close(self) -> None:
        self.closed = True


class ToyJob:
    """One run of the job (one driver)."""

    def __init__(
        self,
        directory: Path,
        seed: int = 0,
        *,
        retained: int = 2,
        sweep_interval: int = 3,
        failures: int = 0,
        fsync: bool = False,
    ) -> None:
        self.directory = directory
        for name in ("out", "pending"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self.storage = LocalStorage(directory / "checkpoint", fsync=fsync)
        self.random = random.Random(seed)
        self.seed = seed
        self.committer = FileCommitter(directory, failures)
        job_id = JobIdentity.claim(self.storage, "toy", PROGRAM)
        self.coordinator = Coordinator(
            self.storage,
            job_id,
            {"out": self.committer},
            retained,
            retry=CommitRetry(sleep=lambda _: None),
            sweep_interval=sweep_interval,
        )

    def run(self) -> None:
        """Open, recover and go on to the end."""
        self.start()
        while self.step():
            pass
        self.coordinator.close()

    def start(self) -> None:
        self.coordinator.open()
        self.coordinator.recover()

    def step(self) -> bool:
        """Do one epoch, or skip its replay; False when the job is over."""
        done = self.coordinator.last
        planned = self._logged("offsets")
        epoch, plan = self._plan(planned)
        replay = bool(planned) and epoch == max(planned)
        if not replay:
            if done is not None and done.final:
                return False
            self.storage.write(f"spark/offsets/{epoch}", json.dumps(plan).encode())
        crash_point("epoch.start.before")
        if not self.coordinator.handle_replay(epoch, {"position": plan["stop"]}):
            self._epoch(epoch, plan)
        self.storage.write(f"spark/commits/{epoch}", b"")
        return True

    def _logged(self, kind: str) -> list[int]:
        return [int(Path(name).name) for name in self.storage.list_names(f"spark/{kind}")]

    def _plan(self, planned: list[int]) -> tuple[int, dict[str, int]]:
        if planned and max(planned) not in self._logged("commits"):
            epoch = max(planned)
            return epoch, json.loads(self.storage.read(f"spark/offsets/{epoch}"))
        epoch = max(planned, default=-1) + 1
        last = self.coordinator.last
        start = int(str(last.offsets["position"])) if last else 0
        size = random.Random(self.seed * 1000 + epoch).randint(0, 12)
        parallelism = 1 + (self.seed + epoch // 3) % 3
        return epoch, {
            "start": start,
            "stop": min(start + size, RECORDS),
            "parallelism": parallelism,
        }

    def _epoch(self, epoch: int, plan: dict[str, int]) -> None:
        parallelism = plan["parallelism"]
        reader = f"r{uuid.uuid4().hex[:6]}"
        numbers = range(plan["start"], plan["stop"])
        crash_point("source.read.after")
        acks = [
            TaskAck(
                epoch,
                0,
                0,
                reader,
                [OperatorAck("numbers", 0, 0, metrics={"numRecordsIn": len(numbers)})],
            )
        ]
        for subtask in range(parallelism):
            for attempt in range(self.random.choice((1, 1, 2))):  # at times one attempt is lost
                ack = self._task(epoch, subtask, parallelism, numbers, reader)
                if attempt == 0:
                    acks.append(ack)
        self.coordinator.complete_epoch(
            EpochMetadata(
                epoch,
                0,
                {"position": plan["stop"]},
                {0: 1, 1: parallelism},
                KEYS,
                final=plan["stop"] == RECORDS,
            ),
            acks,
            {(0, 0)} | {(1, subtask) for subtask in range(parallelism)},
        )

    def _task(
        self, epoch: int, subtask: int, parallelism: int, numbers: range, reader: str
    ) -> TaskAck:
        attempt = uuid.uuid4().hex[:8]
        first, stop = subtask * KEYS // parallelism, (subtask + 1) * KEYS // parallelism
        sums, base = self._restore(first, stop)
        changed: dict[int, int] = {}
        lines = []
        for number in numbers:
            key = number % KEYS
            if first <= key < stop:
                sums[key] = changed[key] = sums[key] + number
                lines.append(json.dumps([key, number, sums[key]]))
        crash_point("sink.prepare.before")
        name = f"{epoch:05d}-{subtask}-{attempt}.jsonl"
        (self.directory / "pending" / name).write_text("\n".join(lines))
        crash_point("sink.prepare.after")
        crash_point("state.flush.before")
        compact = base is None or len(base) > 3
        content = json.dumps(sums if compact else changed).encode()
        local = self.directory / f"local-{attempt}"
        local.write_bytes(content)
        crash_point("state.flush.after")
        remote = f"state/sums/{attempt}"
        crash_point("state.upload.before")
        self.storage.upload(local, remote)
        crash_point("state.upload.after")
        local.unlink()
        file: StateFile = {
            "local": attempt,
            "remote": remote,
            "size": len(content),
            "digest": digest_of([content])[1],
        }
        handle: StateHandle = {
            "backend": "hashmap",
            "id": attempt,
            "key_groups": (first, stop),
            "files": [file] if compact or base is None else [*base, file],
        }
        crash_point("task.ack.before")
        return TaskAck(
            epoch,
            1,
            subtask,
            attempt,
            [
                OperatorAck(
                    "sums", subtask, epoch, state=handle, metrics={"numRecordsOut": len(lines)}
                ),
                OperatorAck("out", subtask, epoch, committables=[pickle.dumps({"file": name})]),
            ],
            consumed=[(0, 0, reader)],
        )

    def _restore(self, first: int, stop: int) -> tuple[dict[int, int], list[StateFile] | None]:
        """The sums of the key groups, and the files to build on if there is one handle for them."""
        sums = dict.fromkeys(range(first, stop), 0)
        last = self.coordinator.last
        base = None
        for handle in handles(last):
            for file in handle["files"]:
                content = self.storage.read(file["remote"])
                assert difference([content], file) is None
                values: dict[str, Any] = json.loads(content)
                sums.update({int(key): sums_ for key, sums_ in values.items() if int(key) in sums})
            if handle["key_groups"] == (first, stop):
                base = handle["files"]
        return sums, base


def handles(manifest: Manifest | None) -> list[StateHandle]:
    """The state handles of the reducing operator."""
    acks = manifest.operators.get("sums", []) if manifest is not None else []
    return [ack.state for ack in acks if ack.state is not None]


if __name__ == "__main__":
    ToyJob(Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0])).run()
    sys.stdout.write("done\n")
