"""The terminal: a prompt with history, completion and statements of several lines.

What it is: prompt_toolkit around a `Shell`.  Enter runs what is whole, and begins a new line
otherwise.
What it is not: needed for scripts, so it is an extra: ``pip install 'millstream[sql]'``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.shell.completion import candidates, word_before
from millstream.cli.shell.shell import is_whole
from millstream.errors import ConfigurationError, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.cli.shell.shell import Shell

__all__ = ["Terminal", "history_file"]

_PROMPT = "millstream> "


def history_file() -> Path:
    """Where statements are remembered, for this user alone."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "millstream" / "sql_history"


class Terminal:
    """Reads statements from a terminal and has a shell run them."""

    def __init__(self, shell: Shell, history: Path | None = None, **session_arguments: Any) -> None:
        """Prepare the prompt.

        Args:
            shell: Runs what is typed.
            history: The file of earlier statements; None: they are forgotten.
            session_arguments: Input and output of prompt_toolkit's, for tests.

        Raises:
            ConfigurationError: prompt_toolkit is not installed.
        """
        try:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.application import get_app
            from prompt_toolkit.filters import Condition
            from prompt_toolkit.history import FileHistory, InMemoryHistory
        except ImportError as error:
            message = (
                "The prompt of `millstream sql` needs prompt_toolkit: pip install "
                "'millstream[sql]'.  Scripts run without: millstream sql -f FILE"
            )
            raise ConfigurationError(message) from error
        self._shell = shell
        if history is not None:
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(mode=0o600)
        self._session: Any = PromptSession(
            history=InMemoryHistory() if history is None else FileHistory(str(history)),
            completer=_completer(shell),
            complete_while_typing=False,
            multiline=Condition(lambda: not is_whole(get_app().current_buffer.text)),
            prompt_continuation=" " * (len(_PROMPT) - 3) + "-> ",
            **session_arguments,
        )

    def run(self) -> None:
        """Read and run statements until QUIT or the end of the input."""
        while True:
            self._shell.tell_of_ended_jobs()
            try:
                text = self._session.prompt(_PROMPT)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if not self._execute(text):
                return

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


def _completer(shell: Shell) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class _Completer(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Any]:
            del complete_event
            text = document.text_before_cursor
            for name in candidates(shell.environment, text):
                yield Completion(name, start_position=-len(word_before(text)))

    return _Completer()
