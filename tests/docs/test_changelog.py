"""The changelog keeps its form, and describes the version of the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CHANGELOG: Final = (ROOT / "CHANGELOG.md").read_text()
CATEGORIES: Final = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_unreleased_changes_come_first_and_then_dated_releases() -> None:
    first, *releases = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert first == "[Unreleased]"
    dates = [re.fullmatch(r"\[\d+\.\d+\.\d+\] - (\d{4}-\d\d-\d\d)", each) for each in releases]
    assert None not in dates
    found = [date[1] for date in dates if date]
    assert found == sorted(found, reverse=True)


def test_the_newest_release_is_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.findall(r"^## \[(\d.+?)\]", CHANGELOG, re.MULTILINE)[0] == version


def test_changes_are_in_the_categories_of_keep_a_changelog() -> None:
    assert set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE)) <= CATEGORIES
