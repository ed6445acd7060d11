"""The terminal of ``millstream sql``: prompt_toolkit around a `Shell`.

Enter runs complete statements, and begins a new line otherwise.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.cli.shell.shell import is_whole
from millstream.configuration.redaction import masked_statement
from millstream.errors import ConfigurationError, MillstreamError
from millstream.sql.catalog.formats import known_options
from millstream.sql.parser.tokens import RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console

    from millstream.cli.shell.shell import Shell
    from millstream.table import TableEnvironment


#: Words that begin a statement.
_FIRST: Final = (
    "ALTER ANALYZE BEGIN CALL COMPILE CREATE DELETE DESCRIBE DROP EXECUTE EXPLAIN INSERT LOAD "
    "RESET SELECT SET SHOW STOP TRUNCATE UNLOAD UPDATE USE VALUES WITH QUIT HELP CLEAR"
)
#: Words of the grammar that are not reserved.
_MORE: Final = (
    "ASC CATALOG CHANGELOG_MODE COLUMNS COMPUTE CUMULATE DATABASE DESC DESCRIPTOR ENFORCED "
    "ESTIMATED_COST EXCLUDING FIRST GENERATED HOP IF INCLUDING JOB JOBS JSON_EXECUTION_PLAN KEY "
    "LAST METADATA NULLS OPTIONS ORDINALITY OVERWRITE PARTITIONED PARTITIONS PLAN_ADVICE PYTHON "
    "SESSION STATISTICS TEMPORARY TUMBLE VIEW VIRTUAL"
)
#: Behind these words stands a table.
_BEFORE_TABLE: Final = frozenset({"FROM", "JOIN", "INTO", "OVERWRITE", "TABLE", "VIEW", "DESCRIBE"})
_KEYWORDS: Final = sorted(RESERVED | set(_MORE.split()))
_WORD: Final = re.compile(r"[\w$`.]*$")
_TABLE: Final = re.compile(r"\b(?:FROM|JOIN|INTO|TABLE)\s+([\w$`.]+)", re.IGNORECASE)


#: Tables whose columns are offered where no table has been named.
_TABLES: Final = 50
_WITH: Final = re.compile(r"\bWITH\s*\(", re.IGNORECASE)
#: A string, whole or not, or a sign; other words are no part of options.
_OPTION_TOKEN: Final = re.compile(r"'((?:[^']|'')*)('?)|([=,)])|[^\s'=,)]+")


@dataclass(frozen=True)
class _Option:
    """Where in ``WITH (...)`` the cursor is."""

    #: The options before it.
    given: dict[str, str]
    #: Whose value is typed; None: a key is.
    key: str | None
    #: What of it is there, with the quote it begins with.
    word: str


def _option_before(text: str) -> _Option | None:
    """The option that is being typed at the end of a text; None: it ends outside of WITH (...)."""
    begins = [match.end() for match in _WITH.finditer(text)]
    if not begins:
        return None
    given: dict[str, str] = {}
    key: str | None = None
    takes_value = False
    word = ""
    for token in _OPTION_TOKEN.finditer(text, begins[-1]):
        value, closed, sign = token[1], token[2], token[3]
        if sign == ")":
            return None
        if sign == "=":
            takes_value = True
        elif sign == ",":
            key, takes_value = None, False
        elif value is None or not closed:
            word = token[0] if token.end() == len(text) else ""
        elif takes_value and key is not None:
            given[key] = value
        else:
            key = value
    return _Option(given, key if takes_value else None, word)


def _options(option: _Option) -> list[str]:
    """Names of connectors and formats, or keys that the connector has, in quotes."""
    start = option.word.lstrip("'").lower()
    known = known_options({} if option.key == "connector" else option.given)
    if option.key is None:
        found = [f"'{each.key}' = " for each in known if each.key not in option.given]
    else:
        found = [f"'{value}'" for each in known if each.key == option.key for value in each.choices]
    return [each for each in found if each[1:].lower().startswith(start)]


def word_before(text: str) -> str:
    """The word that is being typed at the end of a text, with its quote; empty behind a space."""
    option = _option_before(text)
    if option is not None:
        return option.word
    match = _WORD.search(text)
    return "" if match is None else match[0]


def candidates(environment: TableEnvironment, text: str, after: str = "") -> list[str]:
    """Return what the word at the end of a text could become, in order.

    Args:
        environment: Has the catalogs.
        text: What was typed as far as the cursor; its last statement counts.
        after: What stands after the cursor.
    """
    option = _option_before(text)
    if option is not None:
        return _options(option)
    word = word_before(text)
    before = text[: len(text) - len(word)].split()
    if not before or before[-1].endswith(";"):
        return _matching(word, _FIRST.split(), keywords=True)
    last = before[-1].upper()
    if last == "CATALOG":
        return _matching(word, _names(environment.list_catalogs))
    if last == "USE":
        return _matching(word, [*_names(environment.list_databases), "CATALOG", "MODULES"])
    tables = _names(environment.list_tables) + _names(environment.list_views)
    if last in _BEFORE_TABLE:
        return _matching(word, tables)
    statement = text.rpartition(";")[2] + after.partition(";")[0]
    columns = _columns(environment, _TABLE.findall(statement) or tables[:_TABLES])
    names = columns + _names(environment.list_user_defined_functions)
    return _matching(word, names) + _matching(word, _KEYWORDS, keywords=True)


def _names(listing: Callable[[], Iterable[str]]) -> list[str]:
    try:
        return sorted(listing())
    except MillstreamError:
        # A catalog that cannot be read is told of by the statement that needs it.
        return []


def _columns(environment: TableEnvironment, tables: Iterable[str]) -> list[str]:
    """The columns of the tables that the statement names, or of all while it names none."""
    found: list[str] = []
    for name in dict.fromkeys(tables):
        try:
            schema = environment.from_path(name).get_resolved_schema()
        except MillstreamError:
            continue
        found += [column.name for column in schema.columns]
    return list(dict.fromkeys(found))


def _matching(word: str, names: Iterable[str], *, keywords: bool = False) -> list[str]:
    start = word.lower()
    found = [name for name in names if name.lower().startswith(start) and name != word]
    if keywords and word.islower():
        return [name.lower() for name in found]
    return found


_PROMPT = "millstream> "
#: Seconds between two looks at whether standard error is still diverted.
_POLL = 0.1


def history_file() -> Path:
    """Where statements are remembered, for this user alone."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "millstream" / "sql_history"


@contextlib.contextmanager
def diverted_standard_error(console: Console) -> Iterator[None]:
    """Print what this process and its workers write to standard error by way of a console.

    A warning of a worker would otherwise stand in the middle of a table that is being drawn.  The
    console puts it above the table, and above the prompt.

    Args:
        console: prints it, line by line.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    ended = threading.Event()
    reader = threading.Thread(target=_print_lines, args=(reading, console, ended), daemon=True)
    reader.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        ended.set()
        reader.join()
        # Workers that still run keep their end; what they write now goes nowhere.
        os.close(reading)


def _print_lines(reading: int, console: Console, ended: threading.Event) -> None:
    unfinished = b""
    while True:
        is_last = ended.is_set()
        while select.select([reading], [], [], 0 if is_last else _POLL)[0]:
            data = os.read(reading, 65536)
            if not data:
                is_last = True
                break
            *lines, unfinished = (unfinished + data).split(b"\n")
            for line in lines:
                _print_line(console, line)
        if is_last:
            if unfinished:
                _print_line(console, unfinished)
            return


def _print_line(console: Console, line: bytes) -> None:
    text = line.decode(errors="replace").rstrip("\r")
    console.print(text, markup=False, highlight=False, soft_wrap=True)


class Terminal:
    """Reads statements from a terminal and has a shell run them."""

    def __init__(self, shell: Shell, history: Path | None = None, **session_arguments: Any) -> None:
        """Prepare the prompt.

        Args:
            shell: Runs what is typed.
            history: The file of earlier statements, without their secrets; None: they are
                forgotten.
            session_arguments: Input and output of prompt_toolkit's, for tests.

        Raises:
            ConfigurationError: prompt_toolkit is not installed.
        """
        try:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.filters import Condition
            from prompt_toolkit.history import InMemoryHistory
        except ImportError as error:
            message = (
                "The prompt of `millstream sql` needs prompt_toolkit: pip install "
                "'millstream[sql]'.  Scripts run without: millstream sql -f FILE"
            )
            raise ConfigurationError(message) from error
        self._shell = shell
        self._session: Any = PromptSession(
            history=InMemoryHistory() if history is None else _file_history(history),
            completer=_completer(shell),
            complete_while_typing=False,
            # Not the current buffer: during a search (Ctrl-R) that is the one of the search.
            multiline=Condition(lambda: not is_whole(self._session.default_buffer.text)),
            prompt_continuation=" " * (len(_PROMPT) - 3) + "-> ",
            **session_arguments,
        )
        self._question: Any = PromptSession(history=InMemoryHistory(), **session_arguments)

    def run(self) -> None:
        """Read and run statements until QUIT or the end of the input."""
        while True:
            self._shell.tell_of_ended_jobs()
            try:
                text = self._read()
            except KeyboardInterrupt:
                continue
            except EOFError:
                if self._may_leave():
                    return
                continue
            if not self._execute(text) and self._may_leave():
                return

    def _read(self) -> str:
        from prompt_toolkit.patch_stdout import patch_stdout

        with patch_stdout(raw=True):
            return str(self._session.prompt(_PROMPT))

    def _may_leave(self) -> bool:
        """Ask whether jobs that run may end with the shell, if there are any."""
        running = self._shell.running_jobs()
        if not running:
            return True
        jobs = "1 job that runs" if len(running) == 1 else f"{len(running)} jobs that run"
        self._shell.console.print("\n".join(running), markup=False, highlight=False, soft_wrap=True)
        try:
            answer = self._question.prompt(f"End the shell and cancel {jobs}? [y/N] ")
        except KeyboardInterrupt:
            return False
        except EOFError:
            return True
        return answer.strip().lower() in {"y", "yes"}

    def _execute(self, text: str) -> bool:
        """Run what has been typed; an error ends the statement and not the shell."""
        console = self._shell.console
        try:
            return self._shell.run(text)
        except MillstreamError as error:
            message = f"{type(error).__name__}: {error}"
            console.print(message, style="red", markup=False, highlight=False, soft_wrap=True)
        except KeyboardInterrupt:
            console.print("Stopped.", highlight=False)
        return True


def _file_history(path: Path) -> Any:
    """The history in a file, for this user alone, in which secrets are masked."""
    from prompt_toolkit.history import FileHistory

    class _History(FileHistory):
        def store_string(self, string: str) -> None:
            super().store_string(masked_statement(string))

    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return _History(str(path))


def _completer(shell: Shell) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class _Completer(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Any]:
            del complete_event
            text = document.text_before_cursor
            for name in candidates(shell.environment, text, document.text_after_cursor):
                yield Completion(name, start_position=-len(word_before(text)))

    return _Completer()
