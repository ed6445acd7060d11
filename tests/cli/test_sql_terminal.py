"""The prompt of ``millstream sql`` in a real terminal, 80 and 120 columns wide."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

import pexpect
import pyte
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Seconds until what is waited for must be on the screen.
DEADLINE: Final = 90.0
HEIGHT: Final = 30
#: A key, a column that is wider than any terminal, and a count that is updated again and again.
CLICKS: Final = """
CREATE TABLE clicks (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '50',
                                  'fields.n.min' = '1001', 'fields.n.max' = '1004');
CREATE TABLE forgotten (n INT) WITH ('connector' = 'blackhole');
"""
#: Each line of it goes to standard error of a worker while the table is drawn.
WARNING: Final = "RuntimeWarning: divide by zero encountered in log"
MODULE: Final = f"""
import sys
from millstream.table.udf import udf

@udf(result_type="INT")
def noisy(n):
    print("{WARNING}", file=sys.stderr, flush=True)
    return n
"""


class Terminal:
    """A shell in a terminal whose screen can be read."""

    def __init__(self, columns: int, folder: Path, script: str = CLICKS) -> None:
        initial = folder / "initial.sql"
        initial.write_text(script)
        (folder / "noisy_functions.py").write_text(MODULE)
        environment = {
            **os.environ,
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        }
        self._screen = pyte.Screen(columns, HEIGHT)
        self._stream = pyte.ByteStream(self._screen)
        self.process: pexpect.spawn[bytes] = pexpect.spawn(
            sys.executable,
            ["-m", "millstream", "sql", "-i", str(initial)],
            env=environment,
            dimensions=(HEIGHT, columns),
            timeout=DEADLINE,
        )
        self.wait(lambda lines: lines[-1].startswith("millstream>"))

    def lines(self) -> list[str]:
        """What is on the screen, without empty lines at its end."""
        while True:
            try:
                self._stream.feed(self.process.read_nonblocking(65536, timeout=0.05))
            except (pexpect.TIMEOUT, pexpect.EOF):
                break
        text = "\n".join(line.rstrip() for line in self._screen.display).rstrip()
        return text.split("\n")

    def wait(self, condition: Callable[[list[str]], object]) -> list[str]:
        """Read until the screen is as wanted."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            lines = self.lines()
            if condition(lines):
                return lines
            time.sleep(0.02)
        shown = "\n".join(self.lines())
        message = f"not on the screen after {DEADLINE:g} s:\n{shown}"
        raise AssertionError(message)

    def type(self, text: str) -> None:
        """Press keys."""
        self.process.send(text)

    def prompt(self) -> list[str]:
        """Wait for an empty prompt."""
        return self.wait(lambda lines: lines[-1] == "millstream>")


@pytest.fixture(params=[80, 120])
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(request.param, tmp_path)
    yield made
    if made.process.isalive():
        made.process.kill(signal.SIGKILL)
        made.process.wait()  # a busy machine takes longer for it than ``close`` waits
    made.process.close()


def table_of(lines: list[str]) -> list[str]:
    """The lines of the table that is drawn, without its frame; fails if it is torn."""
    frames = [index for index, line in enumerate(lines) if line.startswith("+-")]
    assert len(frames) == 3, "\n".join(lines)
    body = lines[frames[0] : frames[2] + 1]
    assert len({len(line) for line in body}) == 1, "\n".join(lines)
    assert all(line[0] in "+|" and line[-1] in "+|" for line in body), "\n".join(lines)
    return lines[frames[1] + 1 : frames[2]]


def has_rows(count: int) -> Callable[[list[str]], bool]:
    return lambda lines: any(line.startswith(f"{count} rows after") for line in lines)


@pytest.mark.sampled(every=2)
def test_a_live_table_shows_narrow_columns_whole_and_keeps_rows_in_place(
    terminal: Terminal,
) -> None:
    terminal.type("SELECT n, REPEAT('wide', 100) AS w, COUNT(*) AS c FROM clicks GROUP BY n;\r")
    first = table_of(terminal.wait(has_rows(4)))
    keys = [line.split("|")[1].strip() for line in first]
    assert sorted(keys) == ["1001", "1002", "1003", "1004"]

    def has_changed(lines: list[str]) -> bool:
        counts = [line.split("|")[3].strip() for line in table_of(lines)]
        return all(int(count) > 20 for count in counts)

    later = table_of(terminal.wait(has_changed))
    assert [line.split("|")[1].strip() for line in later] == keys
    terminal.type("\x03")
    lines = terminal.prompt()
    assert any(line == "4 rows so far" for line in lines)


@pytest.mark.extended
def test_warnings_of_workers_do_not_tear_the_table(terminal: Terminal) -> None:
    terminal.type("CREATE TEMPORARY FUNCTION noisy AS 'noisy_functions.noisy' LANGUAGE PYTHON;\r")
    terminal.wait(lambda lines: "OK" in lines)
    terminal.type("SELECT noisy(n) AS n, COUNT(*) AS c FROM clicks GROUP BY noisy(n);\r")
    lines = terminal.wait(lambda lines: has_rows(4)(lines) and WARNING in lines)
    table_of(lines)
    terminal.type("\x03")
    terminal.wait(lambda lines: "4 rows so far" in lines)


@pytest.mark.extended
def test_a_search_in_the_history(terminal: Terminal) -> None:
    terminal.type("SHOW TABLES;\r")
    terminal.wait(lambda lines: "2 rows in set" in lines)
    terminal.type("SHOW VIEWS;\r")
    terminal.wait(lambda lines: "Empty set" in lines)
    terminal.type("\x12TABL")
    lines = terminal.wait(lambda lines: "SHOW TABLES;" in lines[-1])
    assert "reverse-i-search" in lines[-1]
    assert not any("Traceback" in line or "Exception" in line for line in lines)
    terminal.type("\r\r")
    lines = terminal.wait(lambda lines: lines.count("2 rows in set") == 2)


@pytest.mark.sampled(every=2)
def test_tab_completes_columns_connectors_and_options(terminal: Terminal) -> None:
    terminal.type("CREATE TABLE wide (elephants INT)\rWITH ('connector' = 'data\t")
    terminal.wait(lambda lines: lines[-1].endswith("'datagen'"))
    terminal.type(", 'number-of\t")
    terminal.wait(lambda lines: lines[-1].endswith("'number-of-rows' ="))
    terminal.type("'1');\r")
    terminal.prompt()
    terminal.type("SELECT  FROM wide;" + "\x1b[D" * len(" FROM wide;") + "eleph\t")
    terminal.wait(lambda lines: lines[-1] == "millstream> SELECT elephants FROM wide;")
    terminal.type("\r")
    terminal.wait(lambda lines: "1 row in set" in lines)


@pytest.mark.sampled(every=2)
def test_quit_asks_while_jobs_run(terminal: Terminal) -> None:
    terminal.type("INSERT INTO forgotten SELECT n FROM clicks;\r")
    lines = terminal.wait(
        lambda lines: any("JobID" in line for line in lines) and lines[-1] == "millstream>"
    )
    job = next(line for line in lines if "JobID" in line).split()[-1]
    terminal.type("SELECT COUNT(*) FROM (VALUES 1, 2);\r")
    terminal.wait(lambda lines: "1 row in set" in lines)
    terminal.type("SHOW JOBS;\r")
    lines = terminal.wait(lambda lines: lines.count("1 row in set") == 2)
    shown = lines[lines.index("millstream> SHOW JOBS;") :]
    assert any(job in line for line in shown)
    assert any("RUNNING" in line for line in shown)
    assert not any("collect" in line for line in shown)
    terminal.type("QUIT\r")
    lines = terminal.wait(lambda lines: lines[-1].startswith("End the shell and cancel 1 job"))
    assert f"{job}  INSERT INTO forgotten SELECT n FROM clicks" in lines
    terminal.type("n\r")
    terminal.prompt()
    terminal.type("\x04")
    terminal.wait(lambda lines: lines[-1].startswith("End the shell and cancel 1 job"))
    terminal.type("y\r")
    terminal.process.expect(pexpect.EOF)
    terminal.process.close()
    assert terminal.process.exitstatus == 0
