"""Shell: splits scripts, runs statements in a TableEnvironment, shows results."""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING, Final

from millstream.cli.shell.display import MODES, Display
from millstream.configuration.options import DML_SYNC, RESULT_MODE
from millstream.configuration.redaction import masked_statement
from millstream.errors import ConfigurationError, MillstreamError
from millstream.sql.parser.nodes import Query
from millstream.sql.parser.parser import parse_statement
from millstream.sql.parser.statement_nodes import Execute, ResetOption, SetOption
from millstream.sql.parser.tokens import is_complete, split_statements
from millstream.sql.suggestions import did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from millstream.execution.job_client import JobClient
    from millstream.sql.parser.nodes import Statement
    from millstream.table import TableEnvironment


#: Commands of the shell, which need no semicolon.
_COMMANDS: Final = frozenset({"QUIT", "EXIT", "HELP", "CLEAR"})
_RESULT_MODE: Final = RESULT_MODE.key
_OWN_PREFIX: Final = "sql-client."

HELP: Final = """\
Statements are Flink's SQL and end with a semicolon.

  SET 'sql-client.execution.result-mode' = 'table' | 'changelog' | 'tableau';
                    how results are shown: as a table that is kept up to date,
                    as the changes as they come, or as the changes in a frame
  SET 'table.dml-sync' = 'true';
                    wait for the end of each INSERT
  SET 'execution.target' = 'spark';
                    run what follows on Spark
  SHOW TABLES;  DESCRIBE t;  EXPLAIN SELECT ...;

  HELP              this text
  CLEAR             an empty screen
  QUIT, EXIT        end; Ctrl-D does the same

Ctrl-C stops the query that runs, or throws away what has been typed.
"""


def is_whole(text: str) -> bool:
    """Return whether a text can be run: statements with semicolons, a command, or nothing."""
    return not text.strip() or text.strip().upper() in _COMMANDS or is_complete(text)


class Shell:
    """Runs statements and shows their results."""

    def __init__(self, environment: TableEnvironment, console: Console, mode: str) -> None:
        """Take what runs statements.

        Args:
            environment: Runs them.
            console: Where results go.
            mode: How results of queries are shown: ``table``, ``changelog`` or ``tableau``.
        """
        self.environment = environment
        self.console = console
        self._default_mode = mode
        #: Jobs of INSERT statements whose end has not been reported yet, with their statements.
        self._jobs: list[tuple[JobClient, str]] = []
        #: Where the statement that runs, or has run last, begins in its script.
        self.line = 1
        #: Options of the shell itself.
        self._own: dict[str, str] = {_RESULT_MODE: mode}

    def run(self, script: str) -> bool:
        """Run all statements of a script, to the first that fails.

        Args:
            script: Statements with semicolons between them; a command alone.

        Returns:
            Whether the shell goes on: False after QUIT.

        Raises:
            MillstreamError: a statement cannot be run, or its job failed.
            KeyboardInterrupt: a query was stopped; the statements behind it have not been run.
        """
        if script.strip().upper() in _COMMANDS:
            return self._command(script.strip().upper())
        for part in split_statements(script):
            self.line = part.line
            if part.statement.upper() in _COMMANDS:
                if not self._command(part.statement.upper()):
                    return False
                continue
            self._statement(parse_statement(part.text), part.text)
        return True

    def tell_of_ended_jobs(self) -> None:
        """Say of each job in the background that has ended since how it did."""
        running = []
        for client, statement in self._jobs:
            status = client.job.get_job_status()
            if not status.is_terminal_state():
                running.append((client, statement))
                continue
            message = f"Job {client.get_job_id()} has ended: {status.name}"
            try:
                client.job.get_job_execution_result()
            except MillstreamError as error:
                message += f"\n{type(error).__name__}: {error}"
            self.console.print(message, markup=False, highlight=False, soft_wrap=True)
        self._jobs = running

    def running_jobs(self) -> list[str]:
        """Return id and statement of each job of an INSERT that still runs, a line each."""
        return [
            f"{client.get_job_id()}  {shorten(masked_statement(statement), 60)}"
            for client, statement in self._jobs
            if not client.job.get_job_status().is_terminal_state()
        ]

    def _command(self, command: str) -> bool:
        if command == "HELP":
            self.console.print(HELP, end="", markup=False, highlight=False)
        elif command == "CLEAR":
            self.console.clear()
        return command not in {"QUIT", "EXIT"}

    def _statement(self, statement: Statement, text: str) -> None:
        if isinstance(statement, SetOption | ResetOption) and self._own_option(statement):
            self.console.print("OK")
            return
        result = self.environment.execute_sql(text)
        if isinstance(statement, Query) or (
            isinstance(statement, Execute) and isinstance(statement.statement, Query)
        ):
            Display(self.console, self._own[_RESULT_MODE]).show(result)
            return
        Display(self.console, self._own[_RESULT_MODE]).show_statement(result)
        client = result.get_job_client()
        if client is not None:
            if self.environment.get_config().get(DML_SYNC.key, "false").lower() == "true":
                result.wait()
            else:
                self._jobs.append((client, text))
        if isinstance(statement, ResetOption) and statement.key is None:
            self._own = {_RESULT_MODE: self._default_mode}

    def _own_option(self, statement: SetOption | ResetOption) -> bool:
        """Set or reset an option of the shell; False if it is none."""
        key = statement.key
        if key is None or not key.startswith(_OWN_PREFIX):
            return False
        if key != _RESULT_MODE:
            message = f"Unknown option '{key}'.{did_you_mean(key, [_RESULT_MODE])}"
            raise ConfigurationError(message)
        if isinstance(statement, ResetOption):
            self._own[key] = self._default_mode
            return True
        value = (statement.value or "").lower()
        if value not in MODES:
            hint = did_you_mean(value, MODES)
            message = f"'{key}' is one of {', '.join(MODES)}, not '{statement.value}'.{hint}"
            raise ConfigurationError(message)
        self._own[key] = value
        return True
