"""The pictures of the documentation: there, small, and those that the command takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.ui import pictures

if TYPE_CHECKING:
    from pathlib import Path

PAGE = pictures.DIRECTORY.parent / "how-to" / "operating.md"


def test_the_page_shows_each_of_them() -> None:
    names = re.findall(r"\]\(\.\./pictures/([\w-]+)\.png\)", PAGE.read_text())
    assert sorted(names) == sorted(pictures.PICTURES)
    for name in names:
        content = (pictures.DIRECTORY / f"{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) < 200_000


@pytest.mark.extended
@pytest.mark.usefixtures("browser")
def test_the_command_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "DIRECTORY", tmp_path)
    pictures.main()
    assert {path.stem for path in tmp_path.iterdir()} == set(pictures.PICTURES)
