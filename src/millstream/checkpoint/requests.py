"""Requests to a running job, and its answers, as blobs in its checkpoint directory.

Whoever may write there asks for a savepoint, or for the end of the job, with
``requests/<id>.json``; the driver of the job finds it within a second and answers with
``requests/<id>.answer.json``.  Signed directories have signed requests.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.checkpoint_storage import CheckpointStorage


DIRECTORY: Final = "requests"
_ANSWER: Final = ".answer.json"
_REQUEST: Final = ".json"
#: Milliseconds after which nobody waits for an answer any more.
_OLD: Final = 60_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What a driver says to a request."""

    #: "accepted", then "done" or "failed".
    state: str
    #: The savepoint, or the checkpoint directory.
    path: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A savepoint, or the end of the job, that somebody outside the driver asks for."""

    request_id: str
    #: None: where the options of the job say.
    directory: str | None
    stop: bool
    drain: bool
    #: Milliseconds since 1970.
    created: int
    #: "canonical" or "native".
    format: str = "canonical"
    #: The job is to be cancelled; nothing else is asked for.
    cancel: bool = False

    @classmethod
    def post(
        cls,
        storage: CheckpointStorage,
        directory: str | None,
        *,
        stop: bool,
        drain: bool,
        form: str = "canonical",
        cancel: bool = False,
    ) -> Self:
        """Ask the job of a checkpoint directory."""
        now = time.time_ns() // 1_000_000
        made = cls(uuid.uuid4().hex, directory, stop, drain, now, form, cancel)
        content = asdict(made)
        if not cancel:
            del content["cancel"]  # an older driver would not know it
        storage.write(made._name(_REQUEST), json.dumps(content).encode())
        return made

    def answer(self, storage: CheckpointStorage) -> Answer | None:
        """What the job has answered so far; None: nothing."""
        try:
            return Answer(**json.loads(storage.read(self._name(_ANSWER))))
        except FileNotFoundError:
            return None

    def withdraw(self, storage: CheckpointStorage) -> None:
        """Delete it, and the answer."""
        storage.delete([self._name(_REQUEST), self._name(_ANSWER)])

    def reply(self, storage: CheckpointStorage, answer: Answer) -> None:
        """Answer it, unless nobody waits any more."""
        if storage.exists(self._name(_REQUEST)):
            storage.write(self._name(_ANSWER), json.dumps(asdict(answer)).encode())

    def _name(self, ending: str) -> str:
        return f"{DIRECTORY}/{self.request_id}{ending}"


def new_requests(storage: CheckpointStorage) -> Iterator[Request]:
    """Those that nobody has answered; what was left behind long ago is deleted.

    Raises:
        SignatureError: one is not to be trusted.
    """
    names = set(storage.list_names(DIRECTORY))
    now = time.time_ns() // 1_000_000
    for name in sorted(names):
        if name.endswith(_ANSWER) or name.replace(_REQUEST, _ANSWER) in names:
            continue
        try:
            value: dict[str, Any] = json.loads(storage.read(name))
            request = Request(**value)
        except FileNotFoundError:
            continue  # withdrawn meanwhile
        except (ValueError, TypeError):
            storage.delete([name])
            continue
        if now - request.created > _OLD:
            request.withdraw(storage)
        else:
            yield request
