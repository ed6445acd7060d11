"""A sink that keeps the contract, in files, and the ways in which it can be broken on purpose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from millstream.contracts.sink import Committer, DeliveryGuarantee, Sink, SinkKind, SinkWriter
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import CommitRequest, Committable, WriterContext

#: What a process keeps where a durable sink has files.
MEMORY: dict[str, list[object]] = {}


class ReferenceSink(Sink):
    """Pending files are ``<job>~<sink>~<generation>~<epoch>~<subtask>~<attempt>``.

    Args:
        directory: where to.
        fault: the name of what is wrong with it; empty: nothing.
    """

    def __init__(self, directory: Path, fault: str = "") -> None:
        self.directory = directory
        self.fault = fault
        self.kept: list[object] = []
        if fault in {"at-least-once", "loses records"}:
            self.guarantee = DeliveryGuarantee.AT_LEAST_ONCE
        if fault in {"no committer", "adds rows"}:
            self.kind = SinkKind.IDEMPOTENT if fault == "adds rows" else SinkKind.ANY

    @property
    def pending(self) -> Path:
        path = self.directory / "pending"
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def visible(self) -> Path:
        path = self.directory / "visible"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Writer(self, context)

    def create_committer(self) -> Committer | None:
        return None if self.fault in {"no committer", "adds rows"} else _Committer(self)

    def read(self) -> list[object]:
        """What readers see, in order of epochs."""
        paths = sorted(self.visible.iterdir(), key=lambda path: path.name.split("~")[3:])
        values = [value for path in paths for value in json.loads(path.read_text())]
        return sorted(values) if self.fault == "mixes the order" else values

    def leftovers(self) -> list[object]:
        return [path.name for path in self.pending.iterdir()]


def parts_of(*parts: object) -> str:
    return "~".join(quote(str(part), safe="") for part in parts)


class _Writer(SinkWriter):
    def __init__(self, sink: ReferenceSink, context: WriterContext) -> None:
        self.sink = sink
        self.values: list[object] = []
        who = context
        attempt = "only" if sink.fault == "shares a name" else who.attempt
        place = f"{who.epoch:04d}", who.subtask, attempt
        self.name = parts_of(who.job_id, who.sink_uid, who.generation, *place)
        self.lock = sink.directory / f"lock~{who.generation}"

    def write(self, batch: Batch) -> None:
        self.values += batch.values
        if self.sink.fault == "locks while it writes":
            self.lock.parent.mkdir(exist_ok=True)
            self.lock.touch()

    def prepare_commit(self) -> Sequence[Committable]:
        fault = self.sink.fault
        self.lock.unlink(missing_ok=True)
        if not self.values:
            if fault == "writes for an empty epoch":
                (self.sink.visible / self.name).write_text('["nothing"]')
            return []
        if fault == "keeps output in memory":
            MEMORY[self.name] = self.values
            return [self.name]
        if fault == "keeps output in a field":
            self.sink.kept = self.values
            return [self.name]
        shown = fault in {"shows too early", "no committer", "adds rows"}
        place = self.sink.visible if shown else self.sink.pending
        with (place / self.name).open("x" if fault == "shares a name" else "w") as file:
            file.write(json.dumps(self.values))
        return [] if fault in {"no committer", "adds rows"} else [self.name]

    def abort(self) -> None:
        self.lock.unlink(missing_ok=True)
        if self.sink.fault == "shows what was aborted":
            (self.sink.visible / self.name).write_text(json.dumps(self.values))


class _Committer(Committer):
    def __init__(self, sink: ReferenceSink) -> None:
        self.sink = sink
        self.fault = sink.fault

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for number, request in enumerate(requests):
            if self.fault == "commits the first only" and number:
                return
            if self.fault == "notes before it commits":
                job, uid = str(request.committable).split("~")[:2]
                note = self.sink.directory / f"noted~{job}~{uid}~{request.epoch}"
                if number == 0 and note.exists():
                    return
                note.touch()
            self._refuse(str(request.committable), request.epoch)
            self._commit(str(request.committable), request.epoch)

        if self.fault == "drops what it does not commit":
            named = {str(request.committable) for request in requests}
            for name in {path.name for path in self.sink.pending.iterdir()} - named:
                (self.sink.pending / name).unlink()

    def _refuse(self, name: str, epoch: int) -> None:
        """As a target does that a writer has locked, or one that looks for another epoch."""
        generation, made_in = map(int, name.split("~")[2:4])
        locked = (self.sink.directory / f"lock~{generation}").exists()
        if locked or (self.fault == "looks for its epoch alone" and made_in != epoch):
            message = f"no {name}"
            raise SinkError(message)

    def _commit(self, name: str, epoch: int) -> None:
        if self.fault == "keeps output in memory":
            if name not in MEMORY:
                message = f"{name} is not here"
                raise SinkError(message)
            (self.sink.visible / name).write_text(json.dumps(MEMORY[name]))
            return
        if self.fault == "keeps output in a field":
            (self.sink.visible / name).write_text(json.dumps(self.sink.kept))
            return
        pending, visible = self.sink.pending / name, self.sink.visible / name
        if self.fault == "copies at each commit":
            visible = self.sink.visible / f"{name}~{len(list(self.sink.visible.iterdir()))}"
            if not pending.exists():
                return
            visible.write_text(pending.read_text())
            return
        if self.fault == "forgets what it committed" and self._newest(name) > epoch:
            visible = self.sink.visible / f"{name}~again"
            visible.write_text('["again"]')
            return
        if self.fault == "loses records" and visible.parent.exists() and epoch > 1:
            pending.unlink(missing_ok=True)
            return
        try:
            pending.rename(visible)
        except FileNotFoundError:
            if not visible.exists() or self.fault == "refuses what it committed":
                message = f"output of checkpoint {epoch} is lost: {name}"
                raise SinkError(message) from None

    def _newest(self, name: str) -> int:
        """The last epoch that was committed for the same job and sink."""
        start = "~".join(name.split("~")[:2])
        found = [each.name for each in self.sink.visible.iterdir() if each.name.startswith(start)]
        return max((int(each.split("~")[3]) for each in found), default=0)

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        if self.fault == "drops nothing":
            return
        found = [self.sink.pending]
        if self.fault == "takes committed output away":
            found.append(self.sink.visible)
        dropped = 0
        for path in [each for directory in found for each in directory.iterdir()]:
            job, uid, run = path.name.split("~")[:3]
            others: list[Any] = [
                job != quote(job_id, safe="") and self.fault != "drops output of other jobs",
                uid != quote(sink_uid, safe="") and self.fault != "drops output of other sinks",
                int(run) > generation and self.fault != "drops output of newer runs",
                path.name in keep and self.fault != "drops what is kept",
            ]
            if not any(others):
                path.unlink()
                dropped += 1
        if self.fault == "cannot abort twice" and not dropped:
            message = "there is nothing to drop"
            raise SinkError(message)
