"""Operations that take their time: a trigger starts one, and its id finds the result."""

from __future__ import annotations

import re
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration.redaction import redacted_text
from millstream.rest.security import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

_ID: Final = re.compile(r"[0-9a-f]{32}")
#: At a time: each has a thread.
_MOST: Final = 16


@dataclass(slots=True)
class _Operation:
    job_id: str
    kind: str
    #: Seconds of ``time.monotonic``; None: it runs.
    ended: float | None = None
    location: str = ""
    failure: str = ""
    #: Whether the client has read the result.
    is_read: bool = False


class Operations:
    """Savepoints and stops that clients have asked for.

    Args:
        seconds: for which a result is kept.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._all: dict[str, _Operation] = {}
        self._lock = threading.Lock()

    def start(
        self,
        job_id: str,
        kind: str,
        run: Callable[[], str],
        trigger_id: object = None,
        *,
        has_result: bool = True,
    ) -> str:
        """Start an operation in a thread and return its id.

        Args:
            job_id: of the job.
            kind: what it is, such as "savepoint".
            run: returns its result, a directory; raises if it fails.
            trigger_id: chosen by the client, so that a request that is sent again starts nothing
                else; None: none was.
            has_result: whether the client is to read one.

        Raises:
            Refused: the id is none, or too many operations run.
        """
        key = uuid.uuid4().hex if trigger_id is None else str(trigger_id)
        if _ID.fullmatch(key) is None:
            raise Refused(400, "triggerId must be 32 hexadecimal digits")
        with self._lock:
            self._forget()
            if key in self._all:
                if (self._all[key].job_id, self._all[key].kind) != (job_id, kind):
                    raise Refused(400, "this triggerId is that of another operation")
                return key
            if sum(each.ended is None for each in self._all.values()) >= _MOST:
                raise Refused(429, f"{_MOST} operations run already; try again when one has ended")
            operation = self._all[key] = _Operation(job_id, kind, is_read=not has_result)
        threading.Thread(
            target=self._run, args=(operation, run), name=f"millstream-rest-{kind}", daemon=True
        ).start()
        return key

    def _run(self, operation: _Operation, run: Callable[[], str]) -> None:
        try:
            operation.location = run()
        except Exception as error:  # noqa: BLE001 - told to who has asked
            operation.failure = redacted_text(f"{type(error).__name__}: {error}")
        operation.ended = time.monotonic()

    def _forget(self) -> None:
        oldest = time.monotonic() - self._seconds
        self._all = {
            key: each
            for key, each in self._all.items()
            if each.ended is None or each.ended >= oldest
        }

    @property
    def are_read(self) -> bool:
        """Return whether all have ended, and their clients have read the results."""
        with self._lock:
            return all(each.is_read for each in self._all.values())

    def status(self, job_id: str, kinds: tuple[str, ...], key: str) -> dict[str, Any]:
        """Return the status of an operation in Flink's form.

        Raises:
            Refused: there is none of this job and kind with this id.
        """
        with self._lock:
            self._forget()
            found = self._all.get(key)
        if found is None or found.job_id != job_id or found.kind not in kinds:
            raise Refused(404, f"Operation {key[:64]} not found")
        if found.ended is None:
            return {"status": {"id": "IN_PROGRESS"}, "operation": None}
        found.is_read = True
        if found.failure:
            cause = {"class": "millstream", "stack-trace": found.failure}
            return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
        return {"status": {"id": "COMPLETED"}, "operation": {"location": found.location}}
