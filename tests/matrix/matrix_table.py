"""The table of a crash matrix run, for a terminal and ``docs/development/crash-matrix.md``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.matrix.matrix_targets import KINDS
from tests.support.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from tests.matrix.matrix_case import Case

__all__ = ["make_table", "write_into"]

#: Around a table of the page; ``{}`` is which, and which end.
MARK: Final = "<!-- table of the last run{}: {} -->\n"


def make_table(passed: Collection[Case], failed: Collection[Case], seeds: int) -> str:
    """Markdown: a row per sink, a column per fault, and the bound."""
    good, bad = Counter(map(_cell, passed)), Counter(map(_cell, failed))
    met = {case.fault for case in (*passed, *failed)}
    faults = [fault for fault in Fault if fault in met]
    lines = [
        "| sink | " + " | ".join(fault.value for fault in faults) + " |",
        "|---|" + "---:|" * len(faults),
    ]
    for kind in KINDS:
        cells = [_text(good[kind, fault], bad[kind, fault]) for fault in faults]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    clean, wrong = good.total(), bad.total()
    lines.append("")
    verdict = f"{clean + wrong} runs with {seeds} seed(s), {wrong} failed."
    if not wrong and clean:
        verdict += f" {clean} clean runs: a failure is rarer than {3 / clean:.2%} of runs at 95 %."
    return "\n".join([*lines, verdict, ""])


def _cell(case: Case) -> tuple[str, Fault]:
    return case.kind, case.fault


def _text(good: int, bad: int) -> str:
    if not good and not bad:
        return ""
    return f"{good}" if not bad else f"**{bad} of {good + bad} failed**"


def write_into(page: Path, table: str, *, on_slots: bool = False) -> None:
    """Replace a table of a page; raises ValueError if it has no place for it."""
    which = " on slots" if on_slots else ""
    opening, closing = MARK.format(which, "begin"), MARK.format(which, "end")
    text = page.read_text()
    head, begin, rest = text.partition(opening)
    _, end, tail = rest.partition(closing)
    if not begin or not end:
        message = f"{page} lacks the lines {opening!r} and {closing!r}"
        raise ValueError(message)
    page.write_text(f"{head}{begin}\n{table}\n{end}{tail}")
