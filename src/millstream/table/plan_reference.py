"""PlanReference: a compiled plan in a file or a string, for ``TableEnvironment.load_plan``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PlanReference:
    """Where a compiled plan is."""

    #: The file, or the text.
    _given: str

    def __str__(self) -> str:
        """Return what it stands for."""
        return f"PlanReference {{{self._given!r}}}"

    @staticmethod
    def from_file(path: str | Path) -> FilePlanReference:
        """A plan in a file."""
        return FilePlanReference(str(path))

    @staticmethod
    def from_json_string(json_string: str) -> JsonContentPlanReference:
        """A plan in a text, as ``CompiledPlan.as_json_string`` gives it."""
        return JsonContentPlanReference(json_string)


@dataclass(frozen=True)
class FilePlanReference(PlanReference):
    """A plan in a file."""

    @property
    def path(self) -> str:
        """The file as it was given."""
        return self._given

    def __str__(self) -> str:
        """The file."""
        return f"PlanReference {{file='{self.path}'}}"

    def get_file(self) -> Path:
        """The file, in full."""
        return Path(self.path).resolve()


@dataclass(frozen=True)
class JsonContentPlanReference(PlanReference):
    """A plan in a text."""

    def __str__(self) -> str:
        """The text."""
        return f"PlanReference {{content='{self._given}'}}"

    def get_content(self) -> str:
        """The text."""
        return self._given
