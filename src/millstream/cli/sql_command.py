"""``millstream sql``: SQL statements from files, from standard input, or typed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError, ProgramError

if TYPE_CHECKING:
    from millstream.cli.shell.executor import Executor
    from millstream.cli.shell.shell import Shell


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """The options of the command line."""

    #: Scripts to run, in order; ``-`` is standard input.
    files: tuple[str, ...] = ()
    #: Scripts that prepare a session: run first, before a prompt too.
    initial: tuple[str, ...] = ()
    #: Options of the configuration.
    configuration: dict[str, str] = field(default_factory=dict)
    #: The address of the SQL gateway that runs the statements; empty: this process does.
    gateway: str = ""
    #: A file with the token of the gateway.
    token_file: str = ""
    #: A PEM file with the gateway's own certificate; empty: one of a known authority.
    certificate: str = ""


def run_sql(options: SqlOptions) -> int:
    """Run scripts, or what is typed if there are none.

    Jobs of INSERT statements run in this process: a script waits for them at its end; somebody who
    leaves the prompt stops them. At a SQL gateway they run in its process, and continue.

    Args:
        options: The options of the command line.

    Returns:
        0, or 1 if a job that was waited for has failed.

    Raises:
        MillstreamError: a statement of a script cannot be run, or its query failed.
        KeyboardInterrupt: a query of a script was stopped.
    """
    from rich.console import Console

    from millstream.cli.shell.shell import Shell

    interactive = not options.files and sys.stdin.isatty()
    executor = _executor(options)
    console = Console(highlight=False, emoji=False)
    shell = Shell(executor, console, "table" if interactive else "tableau")
    try:
        if interactive:
            _interact(shell, options)
        else:
            scripts = (*options.initial, *(options.files or ("-",)))
            all(_run(shell, name) for name in scripts)
    except BaseException:
        executor.close(failed=True)
        raise
    return 0 if executor.close(failed=interactive) else 1


def _executor(options: SqlOptions) -> Executor:
    if options.gateway:
        from millstream.cli.job_targets import Access
        from millstream.cli.shell.gateway_executor import GatewayClient, GatewayExecutor

        token = Access(options.token_file).token
        client = GatewayClient(options.gateway, token, options.certificate)
        return GatewayExecutor(client, options.configuration)
    from millstream.cli.shell.executor import EmbeddedExecutor
    from millstream.configuration.configuration import Configuration
    from millstream.configuration.options import PROGRESS
    from millstream.table import TableEnvironment

    # A line of progress would stand in the middle of the rows.
    quiet = {PROGRESS.key: "off", **options.configuration}
    return EmbeddedExecutor(TableEnvironment.create(Configuration(quiet)))


def _interact(shell: Shell, options: SqlOptions) -> None:
    from millstream.cli.shell.terminal import Terminal, diverted_standard_error, history_file

    terminal = Terminal(shell, history_file())
    with diverted_standard_error(shell.console):
        if all(_run(shell, name) for name in options.initial):
            shell.console.print("Millstream SQL.  HELP has commands, QUIT ends.")
            terminal.run()


def _run(shell: Shell, name: str) -> bool:
    """Run a script; which statement has failed is told where the error does not say it."""
    script = _read(name)
    try:
        return shell.run(script)
    except MillstreamError as error:
        if not str(error).startswith("SQL, line"):
            place = "standard input" if name == "-" else name
            message = f"millstream: {place}, line {shell.line}: this statement has failed"
            print(message, file=sys.stderr)
        raise


def _read(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"The script {name} cannot be read: {error}"
        raise ProgramError(message) from error
