"""Shipping the files of a job: from the program into the checkpoint storage, which workers see.

What it is: each file, and each directory as an archive, under the digest of its content, so that
one that has not changed is not sent again.
What it is not: what the workers do with them (``runtime/job_files.py``).

Read next: ``runtime/job_files.py``.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.model import blocks_of, digest_of
from millstream.directories.run_directory import run_directory
from millstream.graph.job_files import JobFiles, job_files_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.configuration.configuration import Configuration
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.graph.job_files import JobFile

__all__ = ["delete_older_files", "ship_files"]

#: The earliest that a zip archive can say: the digest must not depend on times.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_LOCAL_NAME: Final = ".files"


def ship_files(
    configuration: Configuration, storage: CheckpointStorage, local_root: Path
) -> JobFiles:
    """Send what a job's options name.

    Nothing is deleted: a run that has not been taken over yet may still need what it has sent.

    Args:
        configuration: of the job.
        storage: its checkpoints.
        local_root: of the job on its workers.

    Raises:
        ConfigurationError: a file is not there.
        DirectoryError: it cannot be written to the storage.
    """
    files = tuple(_shipped(file, storage) for file in job_files_of(configuration))
    if not files:
        return JobFiles()
    return JobFiles(files, str(local_root / _LOCAL_NAME), storage)


def delete_older_files(files: JobFiles, storage: CheckpointStorage) -> None:
    """Delete what older runs have sent and this one does not need.

    Args:
        files: of the run, which has taken the job over.
        storage: the job's checkpoints.
    """
    needed = {file.blob for file in files.files}
    storage.delete([name for name in storage.list_names("files") if name not in needed])


def _shipped(file: JobFile, storage: CheckpointStorage) -> JobFile:
    with tempfile.TemporaryDirectory(prefix="ship-", dir=run_directory().path) as directory:
        # A copy: what the digest says must not change while it is sent.
        content = Path(directory) / "content"
        if file.directory:
            _pack(Path(file.path), content)
        else:
            shutil.copyfile(file.path, content)
        shipped = replace(file, digest=digest_of(blocks_of(content))[1])
        if not storage.exists(shipped.blob):
            storage.upload(content, shipped.blob)
    return shipped


def _pack(directory: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(_below(directory, frozenset())):
            name = str(path.relative_to(directory))
            if path.is_dir():
                packed.writestr(zipfile.ZipInfo(f"{name}/", _NO_TIME), b"")
                continue
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (path.stat().st_mode & 0o777) << 16
            packed.writestr(entry, path.read_bytes())


def _below(directory: Path, above: frozenset[Path]) -> Iterator[Path]:
    """Files and directories in a directory; links are followed, but not in circles."""
    real = directory.resolve()
    if real in above:
        return
    for path in directory.iterdir():
        if path.name != "__pycache__":
            yield path
            if path.is_dir():
                yield from _below(path, above | {real})
