"""Write ``docs/reference/options.md``: ``python -m tests.options.reference``."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import millstream
from millstream.configuration import options
from millstream.configuration.flink_options import (
    flink_options,
    named_flink_options,
    option_refusals,
    why_without_effect,
)
from millstream.configuration.option import parse_string
from millstream.configuration.options import ALL_OPTIONS
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import FACTORIES
from millstream.sql.catalog.factories.datagen import options_of
from millstream.sql.catalog.factories.filesystem import FILE_FORMATS
from millstream.sql.catalog.formats import FORMATS, ChosenFormat, known_options
from millstream.sql.catalog.options import unapplied_option
from millstream.types.logical_types import IntType, TimestampType, VarCharType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.configuration.option import ConfigOption
    from millstream.sql.catalog.options import Option

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "options.md"
APPLIED: Final = "applied"
REFUSED: Final = "refused"
NO_EFFECT: Final = "no effect"
_ALWAYS: Final = "always"
_CONNECTORS: Final = Path(__file__).with_name("connector_options.tsv")
_DEFINITIONS: Final = re.compile(r"(^|_)options\.py$")

_INTRODUCTION: Final = """\
# Options

This page lists all options of Flink 2.3.0 (core, tables, Python), the options of those connectors
and formats of Flink that Millstream has, and all options of Millstream. `python -m
tests.options.reference` generates it from the code, and a test compares it with the behavior. An
option of Flink

- is **applied** if it works as in Flink, or as described below;
- is **refused** if it would change results or recovery and Millstream does not support it: the job
  or statement fails at submission, and the error names the option and an alternative. Flink's
  default value is always accepted;
- has **no effect** otherwise: a job that sets it to another value than Flink's default runs, and a
  warning that names it is logged once.

A key that is in none of these lists belongs to the program, and is kept for it. A key that looks
like a misspelled option causes a warning with a suggestion; on a command line it is refused.
"""


_OF_CONNECTORS: Final = """\
## Options of connectors and formats

These options are set in `WITH (...)` of a table. Options of `key.` and `value.` formats are those
of the format. An option that is in neither column is refused with a suggestion;
[SQL](sql.md#connectors) describes those that are applied.
"""


def effect_of(key: str) -> str | None:
    """Return which of the three holds for an option; None if none does."""
    option = ALL_OPTIONS.get(key)
    if option is not None:
        return NO_EFFECT if option.without_effect and not option.pipelined else APPLIED
    if key in option_refusals():
        return REFUSED
    return None if why_without_effect(key) is None else NO_EFFECT


@cache
def constants() -> Mapping[str, ConfigOption[Any]]:
    """Return all options that Millstream defines, by the names of their constants."""
    return {
        name: value for name, value in inspect.getmembers(options) if value in _distinct_options()
    }


def _distinct_options() -> list[ConfigOption[Any]]:
    return list({option.key: option for option in ALL_OPTIONS.values()}.values())


@cache
def read_constants() -> frozenset[str]:
    """Return the constants of options that code outside their definitions reads."""
    files = Path(millstream.__file__).parent.rglob("*.py")
    texts = [each.read_text() for each in files if not _DEFINITIONS.search(each.name)]
    words = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", "\n".join(texts)))
    return frozenset(words & constants().keys())


@cache
def connector_options() -> tuple[tuple[str, str, str], ...]:
    """Return Flink's options of connectors and formats: whose, key, another value than the default.

    Keys of formats begin with the format's name.
    """
    found = []
    for line in _CONNECTORS.read_text().splitlines():
        if not line.startswith("#"):
            owner, key, value = line.split("\t")
            found.append((owner, key if owner in FACTORIES else f"{owner}.{key}", value))
    return tuple(found)


def known_option(owner: str, key: str) -> Option | None:
    """Return the option of a connector or format that is applied; None if there is none."""
    if owner in FACTORIES:
        known = known_options({"connector": owner})
        if owner == "datagen":
            kinds = {"a": IntType(), "b": VarCharType(), "t": TimestampType(precision=3)}
            known += [each for name, kind in kinds.items() for each in options_of(name, kind)]
        prefixed = "properties." if key.startswith("properties.") else ""
        return next(
            (each for each in known if each.key == key or (prefixed and each.required)), None
        )
    known = list(FILE_FORMATS.get(owner, ()))
    known += ChosenFormat("", owner, "").known if owner in FORMATS else ()
    return next((each for each in known if each.key == key), None)


def connector_effect(owner: str, key: str, value: str) -> str | None:
    """Return which of the three holds for an option of a connector or format with this value."""
    known = known_option(owner, key)
    if known is not None:
        try:
            known.parse(value)
        except ValidationError:
            return REFUSED
        return APPLIED
    connector = owner if owner in FACTORIES else "filesystem"
    unapplied = unapplied_option(f"connector '{connector}'", key)
    if unapplied is None:
        return None
    return REFUSED if unapplied.is_refused else NO_EFFECT


def page() -> str:
    """Return the text of the page."""
    lines = [_INTRODUCTION, "## Applied\n", "| option | default | |", "|---|---|---|"]
    lines += [
        _applied(option)
        for option in sorted(_distinct_options(), key=lambda o: o.key)
        if effect_of(option.key) == APPLIED
    ]
    lines += [
        "",
        "## Refused\n",
        "| option | taken | what holds, and what to do |",
        "|---|---|---|",
    ]
    lines += [_refused(key) for key in sorted(option_refusals())]
    lines += ["", "## Without effect\n", "| why | options |", "|---|---|"]
    lines += _without_effect()
    lines += [
        "",
        _OF_CONNECTORS,
        "| connector or format | applied | not applied |",
        "|---|---|---|",
    ]
    lines += _of_connectors()
    return "\n".join(lines) + "\n"


def _applied(option: ConfigOption[Any]) -> str:
    names = f"`{option.key}`" + "".join(f", `{each}`" for each in option.aliases)
    default = parse_string("" if option.default is None else option.default)
    shown = f"`{default}`" if default else ""
    known = named_flink_options().get(option.key)
    if known is not None and not known.is_default("" if option.default is None else option.default):
        shown += f" (Flink: `{known.default}`)" if known.default else " (Flink: none)"
    return f"| {names} | {shown} | {_cell(option.description)} |"


def _refused(key: str) -> str:
    refusal = option_refusals()[key]
    taken = ", ".join(f"`{each}`" for each in refusal.taken if each)
    aliases = "".join(f", `{each}`" for each in named_flink_options()[key].aliases)
    return f"| `{key}`{aliases} | {taken or 'none'} | {_cell(refusal.instead)} |"


def _without_effect() -> Iterable[str]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for each in flink_options():
        if effect_of(each.key) != NO_EFFECT:
            continue
        option = ALL_OPTIONS.get(each.key)
        reason = why_without_effect(each.key) if option is None else option.without_effect
        assert reason is not None
        by_reason[reason].append(each.key)
    for reason, keys in sorted(by_reason.items(), key=lambda entry: (len(entry[1]), entry[0])):
        yield f"| {_cell(reason)} | {', '.join(f'`{key}`' for key in keys)} |"


def _of_connectors() -> Iterable[str]:
    by_owner: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for owner, key, value in connector_options():
        by_owner[owner].append((key, value))
    for owner, options_ in by_owner.items():
        applied, others = [], []
        for key, value in options_:
            effect = connector_effect(owner, key, value)
            if effect == APPLIED:
                applied.append(f"`{key}`")
            else:
                others.append(f"`{key}` ({_reason(owner, key, str(effect), value)})")
        yield f"| `{owner}` | {', '.join(applied)} | {_cell('; '.join(others))} |"


def _reason(owner: str, key: str, effect: str, value: str) -> str:
    connector = owner if owner in FACTORIES else "filesystem"
    unapplied = unapplied_option(f"connector '{connector}'", key)
    if unapplied is not None:
        return f"{effect}: {unapplied.reason}"
    known = known_option(owner, key)
    assert known is not None
    return f"{effect}: not `{value}`, but {' or '.join(f'`{each}`' for each in known.choices)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
