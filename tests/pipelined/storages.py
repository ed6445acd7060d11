"""Checkpoint storages that note what is read of state, or refuse what is uploaded.

They go to the slots with the plan, for a slot need not be a fork of the test's process.  What they
note and are told lies beside the directory of the checkpoints.
"""

from __future__ import annotations

from pathlib import Path

from millstream.checkpoint import LocalStorage

__all__ = ["Noting", "RefusingSome", "RefusingSubtask"]


class _Beside(LocalStorage):
    @property
    def place(self) -> Path:
        """The directory of the test."""
        return Path(self.location).parent

    @property
    def has_output(self) -> bool:
        """Whether something is committed, so that there is a checkpoint to go back to."""
        return any((self.place / "out").glob("part-*"))


class Noting(_Beside):
    """Notes the names of files of state that are read, in ``downloads``."""

    def download(self, name: str, local: Path) -> None:
        """Note, and bring it."""
        with (self.place / "downloads").open("a") as file:
            file.write(f"{name}\n")
        super().download(name, local)


class RefusingSome(_Beside):
    """Refuses as many uploads of state as the file ``refuses`` says, once something is visible."""

    def upload(self, local: Path, name: str) -> None:
        """Refuse, as long as that is wanted."""
        refused = self.place / "refused"
        refused.mkdir(exist_ok=True)
        for number in range(int((self.place / "refuses").read_text())):
            if self.has_output and not (refused / str(number)).exists():
                (refused / str(number)).mkdir(exist_ok=True)
                message = "the storage is away"
                raise ConnectionError(message)
        super().upload(local, name)


class RefusingSubtask(Noting):
    """Refuses state of the first subtask until ``failed`` is there; notes which in ``tried``."""

    def upload(self, local: Path, name: str) -> None:
        """Refuse, as long as that is wanted."""
        is_first = local.parent.parent.name == "0"
        if is_first and self.has_output and not (self.place / "failed").exists():
            (self.place / "tried").mkdir(exist_ok=True)
            (self.place / "tried" / local.parent.name).touch()
            message = "the storage is away"
            raise ConnectionError(message)
        super().upload(local, name)
