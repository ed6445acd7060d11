"""The entry point: arguments, commands, and MillstreamErrors as one line and exit code 1."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final, NoReturn

from millstream import __version__
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import FrameType

    from millstream.cli.checkpoints_command import Selection
    from millstream.cli.run_command import ProgramOptions


_INVALID: Final = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")
_UNKNOWN: Final = re.compile(r"unrecognized arguments: (?P<given>\S+)")

#: Commands about running jobs.
_OF_JOBS: Final = ("list", "status", "savepoint", "stop", "cancel", "metrics", "top", "logs")
#: Options that only ``plan`` has.
_OF_PLAN: Final = ("--svg", "--json")
#: Options of ``run`` and ``plan`` that a program may well have, too; whether they take a value.
_SHARED: Final = {
    "--parallelism": True,
    "-p": True,
    "--checkpoint-dir": True,
    "--from-savepoint": True,
    "--allow-non-restored-state": False,
    "--target": True,
    "--pipelined": False,
    "--master": True,
    "--config": True,
    "--log-config": True,
    "-D": True,
    "--traceback": False,
    "--supervise": False,
    "--standby": False,
}


class ArgumentParser(argparse.ArgumentParser):
    """Reports a wrong argument in a line, with the nearest right one and where to find help."""

    def error(self, message: str) -> NoReturn:
        """Leave by SystemExit(2), as argparse does."""
        hint = self._nearest(message)
        self.exit(2, f"{self.prog}: error: {message}{hint}\nTry '{self.prog} --help'.\n")

    def _nearest(self, message: str) -> str:
        found = _INVALID.search(message)
        if found is not None:
            return _did_you_mean(found["given"], re.findall(r"'([^']*)'", found["known"]))
        found = _UNKNOWN.search(message)
        if found is not None:
            options = [text for action in self._actions for text in action.option_strings]
            return _did_you_mean(found["given"].partition("=")[0], options)
        return ""


def _did_you_mean(given: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(given, list(known), n=1)
    return f". Did you mean '{nearest[0]}'?" if nearest else ""


def command_parser(
    parser: argparse.ArgumentParser, names: Sequence[str]
) -> argparse.ArgumentParser:
    """Return the parser of a command, or of an action of one: the one to report an error.

    Args:
        parser: of all commands.
        names: of the command and the action, as far as there are such.
    """
    for name in names:
        for action in parser._actions:  # noqa: SLF001 - argparse has no public way to its subparsers
            if isinstance(action, argparse._SubParsersAction) and name in action.choices:  # noqa: SLF001
                parser = action.choices[name]
                break
    return parser


def whole_number(text: str) -> int:
    """Read a whole number; argparse would name the function that could not."""
    try:
        return int(text)
    except ValueError:
        message = f"{text!r} is not a whole number"
        raise argparse.ArgumentTypeError(message) from None


def sort_out(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Take the command's own options out of the arguments of the program.

    Leaves by SystemExit(2), as for all wrong arguments, where it is not clear whose one is.
    """
    given: list[str] = options.arguments
    behind = given.index("--") if "--" in given else len(given)
    mine, theirs = given[:behind], given[behind + 1 :]
    if options.command == "plan":
        mine = _take_plan_options(parser, options, mine)
    for position, argument in enumerate(mine):
        name = _shared_option(argument, mine[position + 1 : position + 2])
        if name is not None:
            parser.error(_unclear(options, name, mine[position:]))
    options.arguments = [*mine, *theirs]


def _take_plan_options(
    parser: argparse.ArgumentParser, options: argparse.Namespace, given: list[str]
) -> list[str]:
    rest = []
    arguments = iter(given)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name not in _OF_PLAN:
            rest.append(argument)
        elif name == "--json":
            options.json = True
        else:
            options.svg = value if equals else next(arguments, None)
            if not options.svg or options.svg.startswith("-"):
                parser.error("argument --svg: expected one argument")
    return rest


def _shared_option(argument: str, following: list[str]) -> str | None:
    """Return which of our options an argument looks like, None if it is like none."""
    if argument.startswith("-D"):
        definition = argument[2:] or "".join(following)
        return "-D" if "=" in definition else None
    name = argument.partition("=")[0]
    return name if name in _SHARED else None


def _unclear(options: argparse.Namespace, name: str, found: list[str]) -> str:
    joined = "=" in found[0] or not _SHARED[name]  # with its value in one argument
    text = " ".join(found[:1] if joined else found[:2])
    command = f"millstream {options.command}"
    return (
        f"{name} after {options.program} may be meant for the program: write "
        f"`{command} {text} {options.program}`, or `{command} {options.program} -- {text}` to give "
        "it to the program"
    )


_INTERRUPTED: Final = 130
_TERMINATED: Final = b"millstream: terminated\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: those of the command line, by default the process's own.

    Returns:
        The exit code: 0, 1 for an error that Millstream reports, 130 after an interrupt.  Wrong
        arguments leave by SystemExit(2).
    """
    parser = build_parser()
    options, unknown = parser.parse_known_args(arguments)
    of_command = command_parser(parser, [options.command, getattr(options, "action", None) or ""])
    if unknown:
        is_script = options.command == "sql" and unknown[0].endswith(".sql")
        hint = f"; to run a script: millstream sql -f {unknown[0]}" if is_script else ""
        of_command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if "program" in options:
        sort_out(of_command, options)
    try:
        with _told_of_the_end():
            return _dispatch(options)
    except MillstreamError as error:
        if options.traceback:
            raise
        print(f"millstream: {type(error).__name__}: {error}", file=sys.stderr)
        return _exit_code(options, error)
    except KeyboardInterrupt:
        print("millstream: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; Python would complain once more at exit.
        sys.stderr.close()
        return 1


@contextlib.contextmanager
def _told_of_the_end() -> Iterator[None]:
    """Say that SIGTERM has ended the process, which then ends by it as it would without a word.

    Nothing is cancelled: who stops a machine wants its jobs to go on from their checkpoints.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mine = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() == mine:  # and no process that was forked of it
            os.write(2, _TERMINATED)  # whatever the main thread is writing
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = ArgumentParser(
        prog="millstream",
        description="Stateful stream processing with exactly-once results, on Spark.",
    )
    parser.add_argument("--version", action="version", version=f"millstream {__version__}")
    parser.add_argument(
        "--traceback", action="store_true", help="print the full traceback of an error"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands)
    _add_plan(commands)
    _add_sql(commands)
    _add_sql_gateway(commands)
    _add_ui(commands)
    _add_checkpoints(commands)
    _add_job_commands(commands)
    _add_savepoint(commands)
    _add_state_command(commands)
    _add_transactions(commands)
    for command in commands.choices.values():
        _add_traceback(command)
    return parser


def _add_traceback(parser: argparse.ArgumentParser) -> None:
    """Accept --traceback after the name of a command and of its action, too."""
    parser.add_argument(
        "--traceback", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to its subparsers
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for each in action.choices.values():
                _add_traceback(each)


def _add_run(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    run = commands.add_parser(
        "run",
        help="run a program",
        description="Run a program. Options come before PROGRAM, arguments of the program "
        "after it; put -- before arguments that are also options of this command. Settings of the "
        "program take precedence over the command line.",
    )
    run.add_argument(
        "--supervise",
        action="store_true",
        help="start the driver again on this machine, from the latest checkpoint, if it dies, as "
        "often as the restart strategy allows",
    )
    run.add_argument(
        "--standby",
        action="store_true",
        help="wait while another driver runs the job of the checkpoint directory, and take over "
        "when that is dead",
    )
    _add_program(run)


def _add_plan(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    plan = commands.add_parser(
        "plan",
        help="show the stages and operators of a program without running it",
        description="Show the stages and operators of a program. The program runs up to execute(); "
        "the job is not submitted.",
    )
    plan.add_argument("--svg", metavar="FILE", help="also draw the plan as an SVG file")
    plan.add_argument(
        "--json", action="store_true", help="print the plan as JSON, in Flink's format"
    )
    _add_program(plan)


def _add_sql(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    sql = commands.add_parser(
        "sql",
        help="run SQL statements from files or at a prompt",
        description="Run SQL statements from files, from standard input if it is not a terminal, "
        "or at a prompt. Jobs run on this machine unless --target is given.",
    )
    sql.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help="a script to run, or - for standard input; can be repeated",
    )
    sql.add_argument(
        "-i",
        "--init",
        dest="initial",
        action="append",
        default=[],
        metavar="FILE",
        help="a script to run first, also before a prompt; can be repeated",
    )
    sql.add_argument(
        "--gateway",
        type=_gateway_address,
        metavar="URL",
        help="run the statements in a session of this SQL gateway, such as http://127.0.0.1:8083; "
        "jobs of INSERT continue without the shell",
    )
    sql.add_argument(
        "--token-file",
        default="",
        metavar="FILE",
        help="the token of the gateway (its millstream.rest.token-file)",
    )
    sql.add_argument(
        "--certificate",
        default="",
        metavar="FILE",
        help="the gateway's own certificate, or that of its authority, in PEM format",
    )
    _add_environment(sql)


def _gateway_address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        message = f"{text!r} is no URL: it begins with http:// or https://"
        raise argparse.ArgumentTypeError(message)
    return text


def _add_sql_gateway(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    gateway = commands.add_parser(
        "sql-gateway",
        help="serve SQL to remote clients, over Flink's SQL Gateway REST protocol",
        description="Serve Flink's SQL Gateway REST protocol until the process is terminated, to "
        "this machine at port 8083 by default. Sessions start with the options "
        "given here, and jobs run in this process.",
    )
    _add_environment(gateway)


def _add_ui(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    ui = commands.add_parser(
        "ui",
        help="show running jobs of this machine and finished ones in the web UI",
        description="Serve the web UI to this machine: your jobs that run here and have a REST "
        "API, and the jobs of checkpoint directories, which may be in object stores. Nothing can "
        "be changed there.",
    )
    ui.add_argument("directories", nargs="*", metavar="DIR", help="a checkpoint directory")
    ui.add_argument(
        "--port", default="8082", help="a port, or a range such as 8082-8099 (default: 8082)"
    )
    _add_key_file(ui)


def _add_program(parser: argparse.ArgumentParser) -> None:
    _add_environment(parser)
    parser.add_argument("program", metavar="PROGRAM", help="the Python file")
    rest = parser.add_argument(
        "arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="arguments of the program"
    )
    rest.required = False  # else argparse says that it is missing beside the program


def _add_environment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parallelism", "-p", type=_positive, metavar="N", help="subtasks")
    parser.add_argument("--checkpoint-dir", metavar="DIR", help="the checkpoint directory")
    parser.add_argument(
        "--from-savepoint",
        metavar="PATH",
        help="start from a savepoint, or from the checkpoint directory of another job",
    )
    parser.add_argument(
        "--allow-non-restored-state",
        action="store_true",
        help="drop state in the checkpoint or savepoint that the program does not have any more",
    )
    parser.add_argument(
        "--target",
        choices=("spark", "local"),
        help="where the job runs: on Spark, or in processes of this machine",
    )
    parser.add_argument(
        "--pipelined",
        action="store_true",
        help="run long-running tasks with checkpoint barriers instead of micro-batches",
    )
    parser.add_argument("--master", metavar="URL", help="Spark master, for instance local[2]")
    parser.add_argument("--config", metavar="FILE", help="a YAML file with options")
    parser.add_argument(
        "--log-config",
        metavar="FILE",
        help="a configuration for Python's logging: YAML or JSON for dictConfig, or .ini",
    )
    parser.add_argument(
        "-D",
        dest="definitions",
        action="append",
        default=[],
        type=parse_definition,
        metavar="KEY=VALUE",
        help="an option, for instance -D state.backend.type=hashmap; can be repeated",
    )


def _add_restore(actions: argparse._SubParsersAction[ArgumentParser]) -> None:
    restore = actions.add_parser(
        "restore",
        help="let the job continue from an older checkpoint",
        description="Publish a retained checkpoint again as the newest one, so that the next run "
        "of the job continues from it. Refused if later checkpoints have committed output, which "
        "the job would write again. Stop the job first; a run that is still active ends with an "
        "error.",
    )
    restore.add_argument("epoch", metavar="ID", type=whole_number, help="the checkpoint id")
    restore.add_argument(
        "--repeat-output",
        action="store_true",
        help="continue although output after the checkpoint will be there twice",
    )


def _add_checkpoints(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    checkpoints = commands.add_parser(
        "checkpoints",
        help="inspect a checkpoint directory",
        description="Inspect a checkpoint directory, also while the job runs. Only restore, "
        "confirm and sign change it.",
    )
    checkpoints.add_argument("directory", help="the checkpoint directory")
    _add_key_file(checkpoints)
    actions = checkpoints.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="list the retained checkpoints (the default)")
    inspect = actions.add_parser("inspect", help="show operators, state and splits of a checkpoint")
    inspect.add_argument(
        "epoch",
        metavar="ID",
        nargs="?",
        type=whole_number,
        help="the checkpoint id (default: the latest)",
    )
    _add_state(actions)
    actions.add_parser("verify", help="read every state file and compare its checksum")
    export = actions.add_parser(
        "export",
        help="write a retained checkpoint as a savepoint",
        description="Copy a retained checkpoint, also an older one, into a savepoint below TARGET, "
        "and print its path. A job starts from it with "
        "`millstream run --from-savepoint PATH job.py`.",
    )
    export.add_argument("epoch", metavar="ID", type=whole_number, help="the checkpoint id")
    export.add_argument("target", metavar="TARGET", help="the directory to write to")
    _add_format(export)
    _add_restore(actions)
    confirm = actions.add_parser(
        "confirm",
        help="mark the output of the last checkpoint as committed",
        description="After a kill, a job stops if output of its last checkpoint is neither pending "
        "nor visible, because the output may be lost. If you know that it was visible, and that "
        "readers removed it or the target no longer has a record of it, use this command. Stop "
        "the job first.",
    )
    confirm.add_argument(
        "epoch", metavar="ID", type=whole_number, help="the id of the last checkpoint"
    )

    sign = actions.add_parser(
        "sign",
        help="sign a directory that was written without a key",
        description="Sign all files that a job reads from its checkpoint directory, so that it can "
        "run with millstream.checkpoint.hmac-key-file. Sign only a directory whose content you "
        "trust. Stop the job first.",
    )
    _add_key_file(sign, required=True)


def _add_job_commands(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    """The commands about running jobs."""
    listing = commands.add_parser(
        "list",
        help="list running jobs",
        description="List the jobs of this user that run on this machine, or those of a REST API.",
    )
    listing.add_argument("job", metavar="ADDRESS", nargs="?", help="the address of a REST API")
    status = commands.add_parser("status", help="show how a job is")
    cancel = commands.add_parser(
        "cancel", help="cancel a job", description="End a job now, without a savepoint."
    )
    metrics = commands.add_parser("metrics", help="print metrics of a job")
    top = commands.add_parser(
        "top",
        help="show the tasks of a job with live figures",
        description="Show rates, load, watermark lag, Kafka lag and state of the tasks of a job, "
        "until q is pressed. Plain text if the output is not a terminal.",
    )
    logs = commands.add_parser("logs", help="print the log of the driver, or of a slot")
    for each in (status, cancel, metrics, top, logs):
        _add_job(each)
    metrics.add_argument(
        "pattern",
        metavar="PATTERN",
        nargs="?",
        default="*",
        help="names to print, for instance '*Watermark*' (default: all)",
    )
    top.add_argument("--once", action="store_true", help="print the figures of now, and exit")
    top.add_argument(
        "--interval",
        type=_positive,
        default=2,
        metavar="SECONDS",
        help="time between two updates (default: %(default)s)",
    )
    logs.add_argument("--slot", metavar="ID", help="the slot (default: the driver)")
    logs.add_argument("-f", "--follow", action="store_true", help="also print what is added")
    _add_timeout(cancel)
    for each in (listing, status, cancel, metrics, top, logs):
        _add_token(each)
    for each in (status, cancel):
        _add_key_file(each)


_JOB_HELP: Final = (
    "the name or id of a job on this machine, the address of a REST API, or a checkpoint directory"
)


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        metavar="JOB",
        nargs="?",
        help=f"{_JOB_HELP} (default: the only job on this machine)",
    )


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        default="",
        metavar="FILE",
        help="the token of the REST API (millstream.rest.token-file)",
    )


def _add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=600,
        metavar="SECONDS",
        help="how long to wait (default: %(default)s)",
    )


def _add_savepoint(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    savepoint = commands.add_parser(
        "savepoint",
        help="take a savepoint of a running job",
        description="Ask a running job to take a savepoint, and print the path of the savepoint "
        "when it is complete. The job continues unless --stop is given.",
    )
    stop = commands.add_parser(
        "stop",
        help="stop a job with a savepoint",
        description="Stop a running job. Its output is committed, and the savepoint, or its last "
        "checkpoint if it has no savepoint directory, is where it continues.",
    )
    for each in (savepoint, stop):
        each.add_argument("job", metavar="JOB", help=_JOB_HELP)
        each.add_argument(
            "directory",
            metavar="TARGET",
            nargs="?",
            help="the directory to write to (default: execution.checkpointing.savepoint-dir of "
            "the job)",
        )
    savepoint.add_argument(
        "--stop", action="store_true", help="stop the job; the savepoint is its last checkpoint"
    )
    savepoint.add_argument(
        "--drain",
        action="store_true",
        help="with --stop: let event time end, so that windows and timers fire",
    )
    stop.add_argument(
        "--drain", action="store_true", help="let event time end, so that windows and timers fire"
    )
    for each in (savepoint, stop):
        _add_timeout(each)
        _add_format(each)
        _add_key_file(each)
        _add_token(each)


def _add_state_command(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    state = commands.add_parser(
        "state",
        help="show, compare and export the state of a savepoint",
        description="List the states of a savepoint, or of the latest checkpoint of a checkpoint "
        "directory: operator, type, entries and size. The program is neither needed nor run.",
    )
    state.add_argument("path", metavar="PATH", help="a savepoint or a checkpoint directory")
    state.add_argument(
        "--checkpoint",
        dest="checkpoint_id",
        type=whole_number,
        metavar="ID",
        help="the checkpoint of a checkpoint directory (default: the latest)",
    )
    _add_key_file(state)
    actions = state.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="list the states (the default)")
    show = actions.add_parser("show", help="show the entries of a state")
    show.add_argument("uid", metavar="UID", help="the uid of the operator")
    show.add_argument("state", metavar="STATE", help="the name of the state, as it is listed")
    show.add_argument("--key", help="only the entries of this key")
    diff = actions.add_parser(
        "diff",
        help="compare with another savepoint",
        description="Show entries that are only in PATH (-), only in OTHER (+), or different (~). "
        "The exit code is 1 if there are any.",
    )
    diff.add_argument("other", metavar="OTHER", help="a savepoint or a checkpoint directory")
    for action in (show, diff):
        action.add_argument(
            "--limit",
            type=_positive,
            default=20,
            metavar="N",
            help="entries per state (default: %(default)s)",
        )
    export = actions.add_parser("export", help="write each state as a Parquet file")
    export.add_argument("other", metavar="TARGET", help="a new directory")


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        dest="form",
        choices=("canonical", "native"),
        default="canonical",
        help="store state as Parquet, which any tool reads, or as the state backend does, which is "
        "quicker (default: %(default)s)",
    )


def _add_state(actions: argparse._SubParsersAction[ArgumentParser]) -> None:
    state = actions.add_parser(
        "state",
        help="show the state of a checkpoint",
        description="List the state of every operator; with --operator, list its entries too. "
        "The program is neither needed nor run: objects of its classes are shown by name.",
    )
    state.add_argument(
        "epoch",
        metavar="ID",
        nargs="?",
        type=whole_number,
        help="the checkpoint id (default: the latest)",
    )
    state.add_argument("--operator", default="", metavar="UID", help="uid or name of the operator")
    state.add_argument("--section", default="", metavar="NAME", help="name of a state, as listed")
    state.add_argument("--key", metavar="KEY", help="show only entries of this key")
    state.add_argument(
        "--limit",
        type=_positive,
        default=20,
        metavar="N",
        help="entries per state (default: %(default)s)",
    )


def _add_key_file(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """The same option in two places must not hide what the first was given."""
    parser.add_argument(
        "--hmac-key-file",
        metavar="FILE",
        required=required,
        default=argparse.SUPPRESS,
        help="the key file of the job (millstream.checkpoint.hmac-key-file)",
    )


def _add_transactions(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    transactions = commands.add_parser(
        "transactions",
        help="list, commit or abort open transactions of Kafka sinks",
        description="List or end open transactions of Kafka sinks. A job ends its own "
        "transactions when it restarts; use this command for jobs that will not be restarted.",
    )
    actions = transactions.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list open transactions")
    listing.add_argument(
        "--prefix",
        default="millstream",
        help="prefix of the transactional ids (default: %(default)s)",
    )
    ends = [
        actions.add_parser("commit", help="make the output of transactions visible"),
        actions.add_parser("abort", help="discard the output of transactions"),
    ]
    for end in ends:
        end.add_argument("ids", nargs="+", metavar="ID", help="a transactional id")
        end.add_argument(
            "--force",
            action="store_true",
            help="even if it cannot be verified against the checkpoint directory: output may be "
            "lost or duplicated",
        )
    for action in (listing, *ends):
        action.add_argument(
            "--bootstrap-servers", required=True, metavar="HOST:PORT", help="the brokers"
        )
        action.add_argument(
            "--checkpoint-dir",
            dest="directories",
            action="append",
            default=[],
            metavar="DIR",
            help="checkpoint directory of the job, which lists what to commit; can be repeated",
        )
        _add_key_file(action)
        action.add_argument(
            "-X",
            dest="properties",
            action="append",
            default=[],
            type=parse_definition,
            metavar="KEY=VALUE",
            help="a property of the client, for instance -X security.protocol=SSL; can be repeated",
        )


def _dispatch_storage(options: argparse.Namespace) -> int:
    """Run a command that reads or changes what jobs have stored."""
    if options.command == "ui":
        from millstream.cli.ui_command import run_ui

        key_file = getattr(options, "hmac_key_file", "")
        return run_ui(options.directories, options.port, key_file)
    if options.command == "checkpoints":
        from millstream.cli.checkpoints_command import show_checkpoints

        return show_checkpoints(
            options.directory,
            options.action or "list",
            _epoch(options),
            key_file=getattr(options, "hmac_key_file", ""),
            selection=_selection(options),
            target=getattr(options, "target", ""),
            repeats_output=getattr(options, "repeat_output", False),
            form=getattr(options, "form", "canonical"),
        )
    if options.command == "state":
        from millstream.cli.state_command import StateOptions, show_state

        return show_state(
            StateOptions(
                options.path,
                options.action or "list",
                options.checkpoint_id,
                getattr(options, "hmac_key_file", ""),
                getattr(options, "uid", ""),
                getattr(options, "state", ""),
                getattr(options, "key", None),
                getattr(options, "limit", 20),
                getattr(options, "other", ""),
            )
        )
    from millstream.cli.transactions_command import show_transactions

    properties = {"bootstrap.servers": options.bootstrap_servers, **dict(options.properties)}
    prefix, ids = getattr(options, "prefix", ""), getattr(options, "ids", ())
    return show_transactions(
        options.action,
        properties,
        prefix,
        ids,
        directories=options.directories,
        force=getattr(options, "force", False),
        key_file=getattr(options, "hmac_key_file", ""),
    )


def _dispatch(options: argparse.Namespace) -> int:
    if options.command in ("checkpoints", "state", "transactions", "ui"):
        return _dispatch_storage(options)
    if options.command in _OF_JOBS:
        from millstream.cli.job_commands import run_job_command

        return run_job_command(options)
    # Imported here: `millstream --help` shall not wait for pyarrow and Spark.
    from millstream.cli.run_command import ProgramOptions

    program = ProgramOptions(
        path=getattr(options, "program", ""),
        arguments=getattr(options, "arguments", []),
        parallelism=options.parallelism,
        checkpoint_directory=options.checkpoint_dir,
        savepoint=options.from_savepoint,
        allow_non_restored_state=options.allow_non_restored_state,
        target=options.target,
        pipelined=options.pipelined,
        master=options.master,
        configuration_file=options.config,
        log_configuration=options.log_config,
        standby=getattr(options, "standby", False),
        definitions=dict(options.definitions),
    )
    if options.command == "sql":
        from millstream.cli.sql_command import SqlOptions, run_sql

        files, initial = tuple(options.files), tuple(options.initial)
        return run_sql(
            SqlOptions(
                files,
                initial,
                program.configuration(),
                options.gateway or "",
                options.token_file,
                options.certificate,
            )
        )
    if options.command == "sql-gateway":
        from millstream.cli.sql_gateway_command import run_sql_gateway

        return run_sql_gateway(program.configuration())
    if options.command == "run":
        return _run(program, supervise=options.supervise)
    from millstream.cli.run_command import show_plan

    return show_plan(program, svg=options.svg, as_json=options.json)


def _run(program: ProgramOptions, *, supervise: bool) -> int:
    from millstream.cli.run_command import run_program, supervise_program
    from millstream.configuration.configuration import Configuration
    from millstream.execution.supervision import accept_supervision
    from millstream.logs import configure_driver

    configure_driver(Configuration(program.configuration()), command=True)
    if accept_supervision() or not supervise:
        return run_program(program)
    return supervise_program(program)


def _exit_code(options: argparse.Namespace, error: MillstreamError) -> int:
    if options.command != "run":
        return 1
    from millstream.execution.supervision import exit_code_of

    return exit_code_of(error, is_standby=options.standby)


def _epoch(options: argparse.Namespace) -> int | None:
    epoch: int | None = getattr(options, "epoch", None)
    return epoch


def _selection(options: argparse.Namespace) -> Selection | None:
    if options.action != "state":
        return None
    from millstream.cli.checkpoints_command import Selection

    return Selection(options.operator, options.section, options.key, options.limit)


def _positive(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        message = f"{number} is not positive"
        raise argparse.ArgumentTypeError(message)
    return number


def parse_definition(text: str) -> tuple[str, str]:
    """``key=value`` as a pair."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        message = f"{text!r} is not of the form key=value"
        raise argparse.ArgumentTypeError(message)
    return key.strip(), value.strip()


if __name__ == "__main__":
    sys.exit(main())
