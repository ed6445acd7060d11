"""Materialize the files of a job on a worker, and make them importable.

Requirements are installed and archives extracted once per machine, by the first worker that needs
them; the others wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import uuid
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.model import blocks_of, digest_of
from millstream.directories import LOCAL_STATE, explained, make_own
from millstream.errors import ConfigurationError, CorruptCheckpointError, RequirementsError
from millstream.graph.job_files import FileUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.graph.job_files import JobFile, JobFiles


_LOCK: Final = "lock"
#: The environment variable of PyFlink's workers with the directory of installed requirements.
_INSTALLED_REQUIREMENTS: Final = "_PYTHON_REQUIREMENTS_INSTALL_DIR"
#: Lines of pip's output that say what went wrong.
_LINES: Final = 15
#: What this process has put on its Python path.
_on_path: list[str] = []


def bring_files(files: JobFiles) -> None:
    """Make the files of a job be there and importable, and those of another job not.

    Workers have the environment variables that functions of PyFlink can read: their Python as
    ``python``, that no limit of memory is set for them, and where requirements are installed.

    Raises:
        CorruptCheckpointError: one is not in the storage as it was sent.
        ConfigurationError: an archive is none.
        RequirementsError: the requirements cannot be installed.
        DirectoryError: they cannot be written.
    """
    os.environ.setdefault("python", sys.executable)
    os.environ.setdefault("_PYTHON_WORKER_MEMORY_LIMIT", "-1")
    if not files.files and not _on_path:
        return
    for file in files.of(FileUse.PYTHON, FileUse.CACHED):
        directory = files.path(file).parent
        _once(files, directory, partial(_fetch_whole, files, file))
    archives = files.working_directory
    if archives is not None:
        _once(files, archives, partial(_extract_all, files))
    packages = files.packages_directory
    if packages is not None:
        _once(files, packages, partial(_install, files))
        os.environ[_INSTALLED_REQUIREMENTS] = str(packages)
    else:  # else those of another job in the same worker
        os.environ.pop(_INSTALLED_REQUIREMENTS, None)
    _use_path(files.python_path)


@contextlib.contextmanager
def working_directory(files: JobFiles) -> Iterator[None]:
    """Stand where the archives are extracted, if there are any."""
    directory = files.working_directory
    if directory is None:
        yield
        return
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def _use_path(path: list[str]) -> None:
    """Import from ``path`` first, and no more from that of the job before."""
    if path == _on_path:
        return
    for old in _on_path:
        with contextlib.suppress(ValueError):
            sys.path.remove(old)
    # A module of the same name may be another one in this job.
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None) or ""
        if any(origin.startswith(old + os.sep) for old in _on_path):
            del sys.modules[name]
    _on_path[:] = path
    sys.path[:0] = path
    importlib.invalidate_caches()


def _once(files: JobFiles, directory: Path, make: Callable[[Path], None]) -> None:
    """Have a directory made, by one process of the machine; it is there whole or not at all."""
    if directory.exists():
        return
    root = Path(files.root)
    with explained(LOCAL_STATE, root):
        make_own(LOCAL_STATE, root.parent)
        make_own(LOCAL_STATE, root)
        with (root / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if directory.exists():
                return
            new = root / f"new-{uuid.uuid4().hex}"
            new.mkdir()
            try:
                make(new)
                new.rename(directory)
            finally:
                shutil.rmtree(new, ignore_errors=True)


def _fetch(files: JobFiles, file: JobFile, path: Path) -> None:
    if files.storage is None:
        message = f"{file.path} has not been sent"
        raise CorruptCheckpointError(message)
    try:
        files.storage.download(file.blob, path)
    except FileNotFoundError as error:
        message = f"{files.storage.location}: {file.blob} is missing, the copy of {file.path}"
        raise CorruptCheckpointError(message) from error
    if digest_of(blocks_of(path))[1] != file.digest:
        message = f"{files.storage.location}: {file.blob} is not what was sent of {file.path}"
        raise CorruptCheckpointError(message)


def _fetch_whole(files: JobFiles, file: JobFile, directory: Path) -> None:
    path = directory / file.name
    if not file.directory:
        _fetch(files, file, path)
        path.chmod(0o700 if file.executable else 0o600)
        return
    packed = path.with_name(f"{path.name}.packed")
    _fetch(files, file, packed)
    extract(packed, path)
    packed.unlink()


def _extract_all(files: JobFiles, directory: Path) -> None:
    for file in files.of(FileUse.ARCHIVE):
        packed = directory / f"{file.name}.packed"
        _fetch(files, file, packed)
        extract(packed, directory / file.name, file.path)
        packed.unlink()


def extract(archive: Path, directory: Path, name: str = "") -> None:
    """Extract a zip or tar archive into a new directory; files keep their permissions.

    Raises:
        ConfigurationError: it is neither, is damaged, or has what must not be extracted.
    """
    directory.mkdir()
    try:
        _extract(archive, directory, name)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
        # What the same archive does on every worker and at every restart.
        message = f"{name or archive} cannot be extracted: {error}"
        raise ConfigurationError(message) from error


def _extract(archive: Path, directory: Path, name: str) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if stat.S_ISLNK(entry.external_attr >> 16):
                    message = (
                        f"{name or archive}: {entry.filename} is a symbolic link, which is not"
                        " extracted from a zip archive; make a tar archive, or pack what it is of"
                    )
                    raise ConfigurationError(message)
                path = Path(packed.extract(entry, directory))
                mode = entry.external_attr >> 16 & 0o777
                if mode and not entry.is_dir():
                    path.chmod(mode | 0o600)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as packed_tar:
            packed_tar.extractall(directory, filter="data")
    else:
        message = f"{name or archive} is neither a zip nor a tar archive"
        raise ConfigurationError(message)


def _install(files: JobFiles, directory: Path) -> None:
    """Install the requirements into a directory of their own, with this worker's Python."""
    (requirements,) = files.of(FileUse.REQUIREMENTS)
    own = directory / ".install"
    own.mkdir()
    listed = own / requirements.name
    _fetch(files, requirements, listed)
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--quiet", "--target", str(directory), "--requirement", str(listed)]
    for packages in files.of(FileUse.PACKAGES):
        packed, unpacked = own / "packed", own / packages.name
        _fetch(files, packages, packed)
        extract(packed, unpacked)
        command += ["--no-index", "--find-links", str(unpacked)]
        if not any(unpacked.glob("setuptools*")):
            # What builds a source distribution cannot be fetched then: the worker's own does.
            command.append("--no-build-isolation")
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_LINES:])
        message = f"python.requirements: pip cannot install {requirements.path}:\n{said}"
        raise RequirementsError(message)
    shutil.rmtree(own)
