"""Options behind the name of the program.

What it is: the rule for ``millstream plan job.py --svg job.svg``.  What only the command can mean
is taken for its own (``plan`` does not run the job); what the program might mean as well is refused
with both ways to write it; all else, and all behind ``--``, is the program's.

What it is not: the parser (``cli/main.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

__all__ = ["sort_out"]

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
