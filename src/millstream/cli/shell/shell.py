"""Shell: splits scripts, has an executor run the statements, shows results."""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING, Final

from millstream.cli.shell.display import MODES, Display
from millstream.configuration.options import RESULT_MODE
from millstream.configuration.redaction import masked_statement
from millstream.errors import ConfigurationError, SqlParserError, UnsupportedSqlError
from millstream.sql.parser.parser import parse_statement
from millstream.sql.parser.statement_nodes import ResetOption, SetOption
from millstream.sql.parser.tokens import is_complete, split_statements
from millstream.sql.suggestions import did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from millstream.cli.shell.executor import Executor


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

    def __init__(self, executor: Executor, console: Console, mode: str) -> None:
        """Take what runs statements.

        Args:
            executor: Runs them.
            console: Where results go.
            mode: How results of queries are shown: ``table``, ``changelog`` or ``tableau``.
        """
        self.executor = executor
        self.console = console
        self._default_mode = mode
        #: Ids of INSERT jobs whose end has not been reported yet, with their statements.
        self._jobs: list[tuple[str, str]] = []
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
            self._statement(part.text)
        return True

    def tell_of_ended_jobs(self) -> None:
        """Say of each job in the background that has ended since how it did."""
        running = []
        for job_id, statement in self._jobs:
            end = self.executor.end_of(job_id)
            if end is None:
                running.append((job_id, statement))
                continue
            message = f"Job {job_id} has ended: {end}"
            self.console.print(message, markup=False, highlight=False, soft_wrap=True)
        self._jobs = running

    def running_jobs(self) -> list[str]:
        """Return id and statement of each INSERT job that would end with the shell, a line each."""
        if not self.executor.jobs_end_with_shell:
            return []
        return [
            f"{job_id}  {shorten(masked_statement(statement), 60)}"
            for job_id, statement in self._jobs
            if self.executor.end_of(job_id) is None
        ]

    def _command(self, command: str) -> bool:
        if command == "HELP":
            self.console.print(HELP, end="", markup=False, highlight=False)
        elif command == "CLEAR":
            self.console.clear()
        return command not in {"QUIT", "EXIT"}

    def _statement(self, text: str) -> None:
        statement = _option_statement(text)
        if statement is not None and self._own_option(statement):
            self.console.print("OK")
            return
        result = self.executor.execute_sql(text)
        display = Display(self.console, self._own[_RESULT_MODE])
        if result.is_query:
            display.show(result)
            return
        display.show_statement(result)
        job = result.get_job_client()
        if job is not None:
            if self.executor.waits_for_inserts():
                result.wait()
            else:
                self._jobs.append((job.get_job_id(), text))
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


def _option_statement(text: str) -> SetOption | ResetOption | None:
    """Return a statement that sets or resets an option; None: it is another, or the executor's."""
    try:
        statement = parse_statement(text)
    except (SqlParserError, UnsupportedSqlError):
        # The executor refuses it with the same error, or knows more than this parser.
        return None
    return statement if isinstance(statement, SetOption | ResetOption) else None
