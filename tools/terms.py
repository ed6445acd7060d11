"""``python -m tools.terms`` (``make lint``): find words in texts for users that have a better one.

``tools/terms.toml`` lists the words and the pages that are covered.  The help texts of the command
line, error messages, warnings and the descriptions of options are always covered.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.cli.main import build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "Terms",
    "covered_pages",
    "find_in_help",
    "find_in_messages",
    "find_in_pages",
    "load",
    "main",
]

ROOT: Final = Path(__file__).parents[1]
_CODE: Final = re.compile(
    r"^```.*?^```$|^ {4}[^\n]*$|`[^`]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Terms:
    """Patterns of words to avoid, each with what to write instead."""

    patterns: tuple[tuple[re.Pattern[str], str], ...]

    def find(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Return line, word and advice for each word to avoid, code left out."""
        plain = _CODE.sub(_blank, text)
        for pattern, advice in self.patterns:
            for match in pattern.finditer(plain):
                line = plain.count("\n", 0, match.start()) + 1
                yield line, " ".join(match[0].split()), advice


def _blank(match: re.Match[str]) -> str:
    """Keep the lines of what is left out, so that numbers of lines stay right."""
    return "`" + "\n" * match[0].count("\n") + "`"


def load(*sections: str) -> Terms:
    """Read sections of the word list."""
    table = _settings()
    words = {word: advice for section in sections for word, advice in table[section].items()}
    return Terms(tuple((_whole_words(word), advice) for word, advice in words.items()))


def _whole_words(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{word})(?![\w-])".replace(" ", r"\s+"), re.IGNORECASE)


def covered_pages() -> list[Path]:
    """Return the pages that the list covers."""
    return sorted({page for glob in _settings()["covered"] for page in ROOT.glob(glob)})


def find_in_pages(pages: Sequence[Path]) -> Iterator[str]:
    """Return a line for each word to avoid in these pages."""
    everybody, users = load("terms", "spelling"), load("terms", "spelling", "users")
    developers = {page for glob in _settings()["developers"] for page in ROOT.glob(glob)}
    for page in pages:
        terms = everybody if page in developers else users
        for line, word, advice in sorted(terms.find(page.read_text())):
            yield f"{page.relative_to(ROOT)}:{line}: {word!r}: {advice}"


def find_in_help(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Return a line for each word to avoid in the help texts of a command and its subcommands."""
    text = re.sub(r"\n {4,}", "\n  ", parser.format_help())
    for _, word, advice in load("terms", "spelling", "users").find(text):
        yield f"{parser.prog} --help: {word!r}: {advice}"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                yield from find_in_help(command)


#: Variables that hold messages.
_MESSAGES: Final = frozenset({"hint", "message", "problem", "reason"})
#: Calls whose texts users read: errors, log lines, options.
_CALLS: Final = re.compile(
    r"\w*Error|error|warning|info|Refusal|ConfigOption|boolean|choice|duration|integer|text"
)
#: Keys and values of options, which are code.
_KEYS: Final = re.compile(r"\w[\w-]*(\.[\w-]+)+(: \w+)?")


def find_in_messages(files: Sequence[Path]) -> Iterator[str]:
    """Return a line for each word to avoid in the messages of modules."""
    terms = load("terms", "spelling", "users")
    for file in files:
        found = {
            (node.lineno, word, advice)
            for message in _messages(ast.parse(file.read_text()))
            for node, text in _texts(message)
            if " " in text.strip()
            for _, word, advice in terms.find(_KEYS.sub("`key`", text))
        }
        for line, word, advice in sorted(found):
            shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name
            yield f"{shown}:{line}: {word!r}: {advice}"


def _messages(tree: ast.Module) -> Iterator[ast.expr]:
    """Return the expressions that make texts for users."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield node.exc
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(getattr(target, "id", None) in _MESSAGES for target in targets):
                yield node.value
        elif isinstance(node, ast.Call):
            name = str(getattr(node.func, "id", None) or getattr(node.func, "attr", ""))
            if _CALLS.fullmatch(name):
                yield node


def _texts(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    """Return the string literals of an expression; values within them count as code."""
    if isinstance(node, ast.JoinedStr):
        parts = [p.value if isinstance(p, ast.Constant) else "`value`" for p in node.values]
        yield node, "".join(map(str, parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node, node.value
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _texts(child)


def _settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "tools" / "terms.toml").read_text())


def main() -> int:
    """Print what was found.

    Returns:
        The exit code: 1 if anything was found.
    """
    modules = sorted((ROOT / "src").rglob("*.py"))
    found = [
        *find_in_pages(covered_pages()),
        *find_in_help(build_parser()),
        *find_in_messages(modules),
    ]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
