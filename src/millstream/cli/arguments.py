"""How arguments are read: errors with suggestions, and options after the name of the program.

The rule for ``millstream plan job.py --svg job.svg``: what only the command can mean is taken for
its own (``plan`` does not run the job); what the program might mean as well is refused with both
ways to write it; all else, and everything after ``--``, is the program's.
"""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["ArgumentParser", "command_parser", "sort_out", "whole_number"]

_INVALID: Final = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")
_UNKNOWN: Final = re.compile(r"unrecognized arguments: (?P<given>\S+)")

#: Options that only ``plan`` has.
_OF_PLAN: Final = ("--svg", "--json")
#: Options of ``run`` and ``plan`` that a program may well have, too; whether they take a value.
_SHARED: Final = {
    "--parallelism": True,
    "-p": True,
    "--checkpoint-dir": True,
    "--target": True,
    "--pipelined": False,
    "--master": True,
    "--config": True,
    "-D": True,
    "--traceback": False,
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
    """Which of our options an argument looks like, None if it is like none."""
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
        f"{name} behind {options.program} may be meant for the program: write "
        f"`{command} {text} {options.program}`, or `{command} {options.program} -- {text}` to give "
        "it to the program"
    )
