"""Executor of the shell's statements in a session of a SQL gateway: Millstream's, or Flink's."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream import errors
from millstream.cli.rest_client import RestClient
from millstream.cli.shell.executor import Executor
from millstream.configuration.options import DML_SYNC, MAX_COLUMN_WIDTH, RUNTIME_MODE
from millstream.datastream.collecting import CloseableIterator
from millstream.errors import JobError, MillstreamError, SqlParserError
from millstream.sql_gateway.serialization import columns_from_json
from millstream.table.tableau import NULL, print_changes, print_ok, print_rows, print_submitted
from millstream.types.row import RowKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.sql.catalog.schema import ResolvedSchema

#: The version of the protocol that is spoken: the first with rows as text and with completion.
_VERSION: Final = "v2"
#: Seconds until rows are asked for again if there were none.
_SHORTEST_WAIT: Final = 0.02
_LONGEST_WAIT: Final = 0.5
#: Seconds between two requests that keep the session open; its idle timeout is ten minutes.
_HEARTBEAT: Final = 60.0
_SERVER_SIDE: Final = re.compile(
    r"<Exception on server side:\n(.*)\nEnd of exception on server side>", re.DOTALL
)
_POSITION: Final = re.compile(r"SQL, line (\d+), column (\d+)")
#: Flink's parser takes one statement: a whole set is one only in this form.
_BEGIN_SET: Final = re.compile(r"(\s*)BEGIN(\s+)STATEMENT(\s+)SET\s*;", re.IGNORECASE)


class GatewayClient(RestClient):
    """Requests to a SQL gateway."""

    service = "SQL gateway"
    advice = "`millstream sql-gateway` starts one"

    def refusal(self, status: int, reasons: Sequence[str]) -> MillstreamError:
        """Return the error of a statement as its own class, with its own message."""
        for reason in reasons:
            found = _SERVER_SIDE.search(reason)
            if found is not None:
                return _error_of(found[1])
        return super().refusal(status, reasons)


def _error_of(text: str) -> MillstreamError:
    """Return an error of the gateway's process: of Millstream as it was, of Flink its cause.

    Args:
        text: what Python, or Java, has printed of it.
    """
    name, _, message = text.partition(": ")
    kind = getattr(errors, name.rpartition(".")[2], None)
    if name.startswith("millstream.errors.") and isinstance(kind, type):
        message = message.removesuffix('\nEncountered "<EOF>"')
        if issubclass(kind, SqlParserError):
            place = _POSITION.match(message)
            return kind(message, *map(int, place.groups())) if place else kind(message)
        if issubclass(kind, MillstreamError):
            return kind(message)
    causes = text.split("\nCaused by: ")
    return JobError(causes[-1].partition("\n\tat ")[0].strip())


@dataclass(frozen=True, slots=True)
class GatewayJob:
    """A job that a statement has submitted."""

    job_id: str

    def get_job_id(self) -> str:
        """Return the id of the job."""
        return self.job_id


class GatewayResult:
    """The result of a statement that a gateway runs, page by page."""

    def __init__(self, executor: GatewayExecutor, operation: str, page: Mapping[str, Any]) -> None:
        """Take the first page.

        Args:
            executor: Fetches the others.
            operation: The path of the operation.
            page: The response.
        """
        self._executor, self._operation = executor, operation
        self._page = page
        self.is_query = bool(page.get("isQueryResult"))
        #: Of other statements there is one page, or a few: the operation need not stay open.
        self._rows: list[tuple[RowKind, tuple[str, ...]]] | None = None
        if not self.is_query:
            changes: Any
            with self._changes() as changes:
                self._rows = list(changes)

    def get_resolved_schema(self) -> ResolvedSchema:
        """Return the columns."""
        return columns_from_json(self._page.get("results", {}).get("columns", ()))

    def get_job_client(self) -> GatewayJob | None:
        """Return the job of the statement; None: it has none."""
        job_id = self._page.get("jobID")
        return None if job_id is None else GatewayJob(str(job_id))

    def collect_texts(self) -> CloseableIterator:
        """Return each change as its RowKind and the texts of its columns; closing ends a query."""
        if self._rows is not None:
            return CloseableIterator(iter(self._rows), lambda: None)
        return self._changes()

    def print(self) -> None:
        """Print the rows as Flink's tableau."""
        schema, job = self.get_resolved_schema(), self.get_job_client()
        if self.is_query:
            is_batch, widest = self._executor.query_settings()
            changes: Any
            with self._changes() as changes:
                if is_batch:
                    print_rows(schema, [texts for _, texts in changes], widest)
                else:
                    print_changes(schema, changes, widest)
        elif job is not None:
            print_submitted(job.job_id)
        elif self._page.get("resultKind") == "SUCCESS":
            print_ok()
        else:
            print_rows(schema, [texts for _, texts in self._rows or ()])

    def wait(self) -> None:
        """Return: with ``table.dml-sync`` the gateway has waited for the job."""

    def _changes(self) -> CloseableIterator:
        return CloseableIterator(self._fetched(), self._close)

    def _fetched(self) -> Iterator[tuple[RowKind, tuple[str, ...]]]:
        page, wait = self._page, _SHORTEST_WAIT
        while True:
            data = page.get("results", {}).get("data", ())
            for each in data:
                texts = tuple(NULL if text is None else str(text) for text in each["fields"])
                yield RowKind[each["kind"]], texts
            uri = page.get("nextResultUri")
            if page["resultType"] == "EOS" or uri is None:
                return
            wait = _SHORTEST_WAIT if data else min(2 * wait, _LONGEST_WAIT)
            if not data:
                time.sleep(wait)
            token = str(uri).partition("?")[0].rpartition("/")[2]
            page = self._executor.page(self._operation, int(token))

    def _close(self) -> None:
        self._executor.end_operation(self._operation, is_query=self.is_query)


class GatewayExecutor(Executor):
    """Runs statements in a session of a SQL gateway; INSERT jobs continue without the shell."""

    jobs_end_with_shell = False

    def __init__(
        self,
        client: GatewayClient,
        properties: Mapping[str, str],
        *,
        heartbeat: float = _HEARTBEAT,
    ) -> None:
        """Open a session.

        Args:
            client: Sends the requests.
            properties: The options of the session.
            heartbeat: Seconds between two requests that keep it open.

        Raises:
            JobError: the gateway does not answer, or refuses.
        """
        self._client = client
        body = {"sessionName": "millstream sql", "properties": dict(properties)}
        handle = client.post(f"{_VERSION}/sessions", body)["sessionHandle"]
        self._session = f"{_VERSION}/sessions/{handle}"
        self._closed = threading.Event()
        threading.Thread(
            target=self._keep_open, args=(heartbeat,), name="sql-heartbeat", daemon=True
        ).start()

    def execute_sql(self, statement: str) -> GatewayResult:
        statement = _BEGIN_SET.sub(r"\1EXECUTE\2STATEMENT\3SET BEGIN", statement, count=1)
        submitted = self._client.post(f"{self._session}/statements", {"statement": statement})
        operation = f"{self._session}/operations/{submitted['operationHandle']}"
        wait = _SHORTEST_WAIT
        try:
            while (page := self.page(operation, 0))["resultType"] == "NOT_READY":
                time.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
            return GatewayResult(self, operation, page)
        except BaseException:
            self.end_operation(operation, is_query=True)
            raise

    def page(self, operation: str, token: int) -> Any:
        """Return a page of an operation.

        Raises:
            MillstreamError: the statement failed.
        """
        return self._client.get(f"{operation}/result/{token}?rowFormat=PLAIN_TEXT")

    def end_operation(self, operation: str, *, is_query: bool) -> None:
        """Close an operation, which may be gone by now; that of a query is cancelled before."""
        if is_query:
            with contextlib.suppress(MillstreamError):
                self._client.post(f"{operation}/cancel", {})
        with contextlib.suppress(MillstreamError):
            self._client.delete(f"{operation}/close")

    def query_settings(self) -> tuple[bool, int]:
        """Return whether queries of the session are batch, and how wide their columns may be."""
        found = self._properties()
        mode = str(found.get(RUNTIME_MODE.key, "")).lower()
        width = found.get(MAX_COLUMN_WIDTH.key, MAX_COLUMN_WIDTH.default)
        return mode == "batch", int(width)

    def waits_for_inserts(self) -> bool:
        return str(self._properties().get(DML_SYNC.key, "")).lower() == "true"

    def end_of(self, job_id: str) -> str | None:
        try:
            result = self.execute_sql(f"DESCRIBE JOB '{job_id}'")
        except MillstreamError as error:
            return f"unknown\n{type(error).__name__}: {error}"
        names = [column.name for column in result.get_resolved_schema().columns]
        rows: Any
        with result.collect_texts() as rows:
            found = [dict(zip(names, texts, strict=True))["status"] for _, texts in rows]
        is_over = bool(found) and found[0] in {"FINISHED", "FAILED", "CANCELED"}
        return found[0] if is_over else None

    def complete(self, before: str, after: str) -> Sequence[str]:
        body = {"statement": before + after, "position": len(before)}
        try:
            found = self._client.get(f"{self._session}/complete-statement", body=body)
        except MillstreamError:
            # A key was pressed: what is wrong with the gateway is reported by the next statement.
            return []
        return [str(each) for each in found["candidates"]]

    def close(self, *, failed: bool) -> bool:
        """Close the session; INSERT jobs continue."""
        del failed
        self._closed.set()
        # Else it is closed by its idle timeout.
        with contextlib.suppress(MillstreamError):
            self._client.delete(self._session)
        return True

    def _properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._client.get(self._session)["properties"]
        return found

    def _keep_open(self, interval: float) -> None:
        while not self._closed.wait(interval):
            # The next statement reports a gateway that is gone.
            with contextlib.suppress(MillstreamError):
                self._client.post(f"{self._session}/heartbeat", {})
