"""A message that names a command names one that exists and does what is said."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.job_runs import collect, environment

from millstream.cli.main import build_parser, main
from millstream.common import Types
from millstream.errors import CorruptCheckpointError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parents[2] / "src" / "millstream"
COMMAND = re.compile(r"`(millstream [^`]+)`")


def messages(word: str) -> Iterator[tuple[str, str]]:
    """File and text of every string that is no docstring; what is put into it is a 1.

    Only of files in which the word is: parsing takes time.
    """
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if word not in text:
            continue
        tree = ast.parse(text)
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                if isinstance(node, ast.Expr):
                    continue
                if isinstance(child, ast.JoinedStr):
                    parts = [
                        str(part.value) if isinstance(part, ast.Constant) else "1"
                        for part in child.values
                    ]
                    yield path.name, "".join(parts)
                elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                    yield path.name, child.value


def test_commands_that_messages_name_exist() -> None:
    found = [
        (name, command)
        for name, text in messages("`millstream ")
        for command in COMMAND.findall(text)
    ]
    assert {"checkpoints"} <= {command.split()[1] for _, command in found}
    for name, command in found:
        try:
            build_parser().parse_args(shlex.split(command)[1:])
        except SystemExit:
            pytest.fail(f"{name} names {command!r}, which is no command")


def test_no_message_advises_what_no_command_does() -> None:
    """Output behind an older checkpoint is committed; going on from there writes it again."""
    advice = re.compile(r"try an? (older|earlier)", re.IGNORECASE)
    assert not [(name, text) for name, text in messages("ry an ") if advice.search(text)]


def test_the_command_of_a_damaged_state_file_lists_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def cluster() -> MiniCluster:
        env = environment(1)
        numbers = env.from_collection(list(range(20)), Types.LONG())
        collect(numbers.key_by(lambda n: n % 2).reduce(lambda a, b: a + b), tmp_path, "sums")
        return MiniCluster(env.get_job_graph("damaged"), tmp_path / "job", limits=[5] * 10)

    cluster().run(2)
    for state in (tmp_path / "job" / "state").rglob("*.arrow"):
        state.write_bytes(state.read_bytes()[:-1] + b"?")
    for path in (tmp_path / "job" / "local").rglob("*.arrow"):
        path.unlink()
    with pytest.raises(CorruptCheckpointError) as damaged:
        cluster().run(1)
    (command,) = COMMAND.findall(str(damaged.value))
    assert main(shlex.split(command)[1:]) == 1
    assert f"state/{state.parent.name}/{state.name}: its digest is" in capsys.readouterr().out
