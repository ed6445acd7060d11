"""The files of a job (``python.files``, ``pipeline.cached-files``, ...) and their worker paths."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from millstream.configuration import options
from millstream.configuration.option import parse_list
from millstream.errors import ConfigurationError, UnpicklableFunctionError
from millstream.object_stores import StoreOptions
from millstream.types.pickling import dumps_by_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FunctionType

    from millstream.configuration.configuration import Configuration
    from millstream.configuration.option import ConfigOption
    from millstream.contracts.checkpoint_storage import CheckpointStorage


#: What PyFlink writes between a path and what belongs to it.
_PARAMETER: Final = "#"
_QUOTES: Final = "'\""


class FileUse(Enum):
    """The use of a file."""

    #: A module, package or archive of them, for the workers' Python path.
    PYTHON = "python"
    #: Extracted in the workers' working directory.
    ARCHIVE = "archive"
    #: Names packages to install.
    REQUIREMENTS = "requirements"
    #: A directory of what to install them from.
    PACKAGES = "packages"
    #: Found by functions under its name.
    CACHED = "cached"


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file or directory of the program's."""

    use: FileUse
    #: Where the program has it.
    path: str
    #: Of the file on the worker; of the directory that an archive is extracted into.
    name: str
    executable: bool = False
    #: A directory travels as a zip archive.
    directory: bool = False
    #: Of what travels; empty before that.
    digest: str = ""

    @property
    def blob(self) -> str:
        """Its name in the checkpoint storage."""
        return f"files/{self.digest.rpartition(':')[2]}"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """All files of a job, where they come from, and where they are on every worker."""

    files: tuple[JobFile, ...] = ()
    #: A directory of the worker's; empty before they have travelled.
    root: str = ""
    storage: CheckpointStorage | None = None
    #: With which workers open the object stores of the job; this is how they travel.
    store_options: StoreOptions = field(default_factory=StoreOptions)

    def of(self, *uses: FileUse) -> list[JobFile]:
        """Those for some uses."""
        return [file for file in self.files if file.use in uses]

    def path(self, file: JobFile) -> Path:
        """Where a file is that is not extracted or installed."""
        return Path(self.root) / _key([file]) / file.name

    @property
    def working_directory(self) -> Path | None:
        """Where archives are extracted; None without archives."""
        return self._made_of("archives", self.of(FileUse.ARCHIVE))

    @property
    def packages_directory(self) -> Path | None:
        """Where requirements are installed; None without requirements."""
        return self._made_of("packages", self.of(FileUse.REQUIREMENTS, FileUse.PACKAGES))

    @property
    def python_path(self) -> list[str]:
        """Return what goes before the worker's own Python path; what was added last comes first."""
        path = []
        # As in PyFlink: of two files with a module of one name, the last is imported.
        for file in reversed(self.of(FileUse.PYTHON)):
            at = self.path(file)
            path.append(str(at.parent if at.suffix == ".py" else at))
        if self.packages_directory is not None:
            path.append(str(self.packages_directory))
        return path

    @property
    def cached(self) -> dict[str, str]:
        """The paths of cached files by their names."""
        return {file.name: str(self.path(file)) for file in self.of(FileUse.CACHED)}

    def _made_of(self, name: str, files: Iterable[JobFile]) -> Path | None:
        found = list(files)
        return Path(self.root) / f"{name}-{_key(found)}" if found else None


def _key(files: Iterable[JobFile]) -> str:
    """Return what is made of these files, by this version of Python, has this name."""
    parts = [(file.digest, file.name, file.executable) for file in files]
    text = repr((parts, sys.version_info[:2]))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def job_files_of(configuration: Configuration) -> tuple[JobFile, ...]:
    """The files that a job's options name.

    Raises:
        ConfigurationError: one is not there, or two are to have the same name.
    """
    found = [
        *_python_files(configuration),
        *_archives(configuration),
        *_requirements(configuration),
        *_cached(configuration),
    ]
    names: dict[tuple[FileUse, str], JobFile] = {}
    for file in found:
        other = names.setdefault((file.use, file.name), file)
        if file.use in {FileUse.ARCHIVE, FileUse.CACHED} and other is not file:
            message = f"{other.path} and {file.path} are both to be {file.name!r} on the workers"
            raise ConfigurationError(message)
    return tuple(found)


def _python_files(configuration: Configuration) -> Iterator[JobFile]:
    for entry in _entries(configuration, options.PYTHON_FILES):
        path = _existing(entry, options.PYTHON_FILES)
        yield JobFile(FileUse.PYTHON, str(path), path.name, directory=path.is_dir())


def _archives(configuration: Configuration) -> Iterator[JobFile]:
    for entry in _entries(configuration, options.PYTHON_ARCHIVES):
        given, _, target = entry.partition(_PARAMETER)
        path = _existing(given, options.PYTHON_ARCHIVES)
        name = target or path.name
        if Path(name).name != name or name in {".", ".."}:
            message = f"{options.PYTHON_ARCHIVES.key}: {name!r} is no name of one directory"
            raise ConfigurationError(message)
        yield JobFile(FileUse.ARCHIVE, str(path), name, directory=path.is_dir())


def _requirements(configuration: Configuration) -> Iterator[JobFile]:
    given, _, packages = configuration.get(options.PYTHON_REQUIREMENTS).partition(_PARAMETER)
    if not given:
        return
    path = _existing(given, options.PYTHON_REQUIREMENTS)
    yield JobFile(FileUse.REQUIREMENTS, str(path), "requirements.txt")
    if packages:
        directory = _existing(packages, options.PYTHON_REQUIREMENTS)
        yield JobFile(FileUse.PACKAGES, str(directory), "packages", directory=True)


def _cached(configuration: Configuration) -> Iterator[JobFile]:
    try:
        entries = parse_list(configuration.get(options.CACHED_FILES))
    except ValueError as error:
        message = f"{options.CACHED_FILES.key}: {error}"
        raise ConfigurationError(message) from None
    for entry in entries:
        fields = dict(part.split(":", 1) for part in _fields(entry) if ":" in part)
        if not fields.get("name") or not fields.get("path"):
            message = (
                f"{options.CACHED_FILES.key}: {entry!r} has no name or no path; write "
                "'name:words,path:/tmp/words.txt'"
            )
            raise ConfigurationError(message)
        path = _existing(_unquoted(fields["path"]), options.CACHED_FILES)
        executable = _unquoted(fields.get("executable", "")).lower() == "true"
        name = _unquoted(fields["name"])
        if Path(name).name != name or name in {".", ".."}:
            message = f"{options.CACHED_FILES.key}: {name!r} is no name of a file"
            raise ConfigurationError(message)
        yield JobFile(
            FileUse.CACHED, str(path), name, executable=executable, directory=path.is_dir()
        )


def cached_file_entry(path: str, name: str, *, executable: bool) -> str:
    """An entry of ``pipeline.cached-files``."""
    return f"name:'{name}',path:'{path}',executable:{'true' if executable else 'false'}"


def _entries(configuration: Configuration, option: ConfigOption[str]) -> list[str]:
    # With commas, as PyFlink's; lists of a configuration file come with semicolons.
    entries = re.split("[,;]", configuration.get(option))
    return [entry.strip() for entry in entries if entry.strip()]


def _fields(text: str) -> list[str]:
    """Return the parts between commas that are not in quotes."""
    parts, quote = [""], ""
    for character in text:
        if character == "," and not quote:
            parts.append("")
            continue
        parts[-1] += character
        if character in _QUOTES and quote in {"", character}:
            quote = "" if quote else character
    return [part.strip() for part in parts if part.strip()]


def _unquoted(text: str) -> str:
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in _QUOTES
    return text[1:-1] if quoted else text


def _existing(given: str, option: ConfigOption[str]) -> Path:
    parts = urlsplit(given)
    if parts.scheme and parts.scheme != "file" and "://" in given:
        message = f"{option.key}: {given} is not on this machine; copy it here first"
        raise ConfigurationError(message)
    path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(given)
    if not path.exists():
        message = f"{option.key}: there is no file or directory {str(path)!r}"
        raise ConfigurationError(message)
    return path.absolute()


_LOG: Final = logging.getLogger("millstream")
#: From so many bytes on something of the user's is worth a warning.
LARGE: Final = 10 << 20

_MAX_DEPTH = 6
_SHOWN = 120


@dataclass(frozen=True, slots=True)
class _Culprit:
    path: str
    value: object
    error: Exception


def check_picklable(value: object, *, what: str, operator: str, location: str) -> int:
    """Raise unless ``value`` can be shipped to the workers; returns its size there in bytes.

    Args:
        value: the user's function or object.
        what: what to call it, such as "function".
        operator: name of the operator that uses it.
        location: "job.py:12", where the operator was made.

    Raises:
        UnpicklableFunctionError: it cannot; names the innermost object that is to blame.
    """
    try:
        return len(dumps_by_value(value))
    except Exception as failure:  # noqa: BLE001 - user classes raise anything from __reduce__
        error = failure
    culprit = _find(value, _title(value), error, depth=0, seen=set())
    shown = _describe(culprit.value)
    message = (
        f"the {what} of operator '{operator}' ({location}) cannot be shipped to the workers: "
        f"{culprit.path} is {shown}, which cannot be pickled ({culprit.error}). "
        "Create such objects in open(), which runs in the worker, or in the function itself."
    )
    raise UnpicklableFunctionError(message) from culprit.error


def warn_of_size(value: object, size: int, *, what: str, operator: str, location: str) -> None:
    """Warn of what is so large that each worker takes long to get it; see ``check_picklable``."""
    path, largest = _title(value), size
    for part_path, part in _parts(value, path):
        found = _size(part)
        if found > size // 2:
            path, largest = part_path, found
            break
    _LOG.warning(
        "the %s of operator %r (%s) is %d MB when it is shipped to the workers, of which %s takes"
        " %d MB; each worker gets a copy, and after every restart again. Load such data in open(),"
        " from a file that the workers can read or that env.register_cached_file() ships",
        *(what, operator, location, size >> 20, path, largest >> 20),
    )


def _size(value: object) -> int:
    try:
        return len(dumps_by_value(value))
    except Exception:  # noqa: BLE001 - a part that is left out by what has it
        return 0


def _failure(value: object) -> Exception | None:
    try:
        dumps_by_value(value)
    except Exception as error:  # noqa: BLE001 - user classes raise anything from __reduce__
        return error
    return None


def _title(value: object) -> str:
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return str(name)


def _describe(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the message
        text = "an object"
    if len(text) > _SHOWN:
        text = text[: _SHOWN - 3] + "..."
    return f"{text} of type {type(value).__module__}.{type(value).__qualname__}"


def _find(value: object, path: str, error: Exception, depth: int, seen: set[int]) -> _Culprit:
    """Descend to the first part that fails by itself, as long as there is one."""
    seen.add(id(value))
    if depth < _MAX_DEPTH:
        for part_path, part in _parts(value, path):
            if id(part) in seen:
                continue
            part_error = _failure(part)
            if part_error is not None:
                return _find(part, part_path, part_error, depth + 1, seen)
    return _Culprit(path, value, error)


def _parts(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Find what pickling ``value`` would pickle as well, with a name for each."""
    if inspect.ismethod(value):
        yield _title(value.__self__), value.__self__
    elif inspect.isfunction(value):
        yield from _parts_of_function(value, path)
    elif isinstance(value, type):
        members = vars(value).items()
        yield from ((f"{path}.{name}", part) for name, part in members if name[:2] != "__")
    elif isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{path}[{index}]", part) for index, part in enumerate(value))
    else:
        yield from ((f"{path}.{name}", part) for name, part in _attributes(value))
        if type(value).__module__ == "__main__":  # then the class is pickled too
            yield type(value).__qualname__, type(value)


def _parts_of_function(function: FunctionType, path: str) -> Iterator[tuple[str, object]]:
    variables = inspect.getclosurevars(function)
    for name, part in variables.nonlocals.items():
        yield f"variable '{name}' used by {path}", part
    for name, part in variables.globals.items():
        yield f"global '{name}' used by {path}", part
    for index, part in enumerate(function.__defaults__ or ()):
        yield f"default value {index} of {path}", part


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    yield from getattr(value, "__dict__", {}).items()
    for owner in type(value).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield name, getattr(value, name)
