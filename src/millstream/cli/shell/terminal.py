"""The terminal of ``millstream sql``: prompt_toolkit around a `Shell`.

Enter runs complete statements, and begins a new line otherwise.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.shell.shell import is_whole
from millstream.configuration.redaction import masked_statement
from millstream.errors import ConfigurationError, MillstreamError
from millstream.table.completion import word_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from millstream.cli.shell.shell import Shell


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
            for name in shell.executor.complete(text, document.text_after_cursor):
                yield Completion(name, start_position=-len(word_before(text)))

    return _Completer()
