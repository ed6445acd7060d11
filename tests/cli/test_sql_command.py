"""``millstream sql`` as it is called: scripts, standard input, errors, exit codes."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

QUERY = "SELECT name, COUNT(*) AS n FROM (VALUES ('a'), ('b'), ('a')) AS x (name) GROUP BY name"


def test_a_script_and_what_prepares_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "init.sql").write_text("CREATE VIEW v AS VALUES ('größe');\n")
    (tmp_path / "a.sql").write_text(f"DESCRIBE v;\n{QUERY};\n", encoding="utf-8")
    arguments = ["sql", "-i", str(tmp_path / "init.sql"), "-f", str(tmp_path / "a.sql")]
    assert main([*arguments, "--parallelism", "1"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("OK\n")
    assert "|           EXPR$0 |" in output.out or "EXPR$0" in output.out
    assert "| +I |" in output.out
    assert "| -U |" in output.out
    assert output.err == ""


def test_a_table_of_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"SET 'sql-client.execution.result-mode' = 'table';\n{QUERY};\nQUIT;\nSELECT FROM;"
    monkeypatch.setattr(sys, "stdin", io.StringIO(script))
    assert main(["sql", "-p", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["OK", "+------+---+", "| name | n |", "+------+---+"]
    assert sorted(lines[4:6]) == ["|    a | 2 |", "|    b | 1 |"]
    assert lines[6:] == ["+------+---+", "2 rows in set"]


def test_an_error_names_its_line_in_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "a.sql"
    script.write_text("SHOW CATALOGS;\n\n  SELECT a FORM t;\nSHOW CATALOGS;\n")
    assert main(["sql", "-f", str(script)]) == 1
    output = capsys.readouterr()
    assert output.out.count("default_catalog") == 1
    assert output.err.startswith("millstream: SqlParserError: SQL, line 3, column 17: found t")
    assert "Did you mean FROM instead of FORM?" in output.err
    assert "\n      SELECT a FORM t;\n" in output.err or "SELECT a FORM t" in output.err


def test_an_error_without_a_place_names_its_statement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "a.sql"
    script.write_text("SHOW CATALOGS;\n\nUSE nowhere;\n")
    assert main(["sql", "-f", str(script)]) == 1
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == f"millstream: {script}, line 3: this statement has failed"
    assert second.startswith("millstream: CatalogError: A database with name 'nowhere' does not")


def test_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-f", str(tmp_path / "none.sql")]) == 1
    assert "none.sql cannot be read" in capsys.readouterr().err
    (tmp_path / "binary.sql").write_bytes(b"\xff\xfe")
    assert main(["sql", "-i", str(tmp_path / "binary.sql"), "-f", "-"]) == 1
    assert "binary.sql cannot be read" in capsys.readouterr().err
    assert main(["sql", "-D", "parallelism.default=none", "-f", "-"]) == 1
    assert "ConfigurationError" in capsys.readouterr().err


def test_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sql", "--help"])
    assert caught.value.code == 0
    assert "--init FILE" in capsys.readouterr().out
