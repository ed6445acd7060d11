"""Object stores as a file system of pyarrow, for readers of files: lists, and reads ranges."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.object_stores import ObjectEntry, ObjectStore, StoreAccess


#: Bytes that are read at a time where a reader asks for less.
_READ_AHEAD: Final = 1 << 20


def object_file_system(location: str, stores: StoreAccess) -> tuple[Any, str]:
    """Return the file system of a URI of an object store, and the path within it.

    Raises:
        ConfigurationError: the URI is malformed, or the library is not installed.
    """
    scheme, _, path = location.partition("://")
    bucket = path.partition("/")[0]
    store = stores.open(f"{scheme}://{bucket}")
    return fs.PyFileSystem(_Handler(store, bucket)), path


class _Handler(fs.FileSystemHandler):  # type: ignore[misc] # pyarrow has no types
    """Paths are ``bucket/key``, as those of pyarrow's own S3 file system; nothing is written."""

    def __init__(self, store: ObjectStore, bucket: str) -> None:
        self._store = store
        self._bucket = bucket

    def get_type_name(self) -> str:
        return "millstream-objects"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[Any]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> Any:
        key = self._key(path)
        found = self._store.find(key) if key else None
        if found is not None:
            return self._file(found)
        is_directory = next(iter(self._store.list_objects(key, most=1)), None) is not None
        return fs.FileInfo(path, fs.FileType.Directory if is_directory else fs.FileType.NotFound)

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        return [self._file(each) for each in self._store.list_objects(self._key(selector.base_dir))]

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> Any:
        key = self._key(path)
        found = self._store.find(key)
        if found is None:
            message = f"{self._store.location} has no object {key}"
            raise FileNotFoundError(message)
        reader = io.BufferedReader(_RangeReader(self._store, found), _READ_AHEAD)
        return pa.PythonFile(reader, mode="r")

    def _key(self, path: str) -> str:
        return path.removeprefix(self._bucket).strip("/")

    def _file(self, entry: ObjectEntry) -> Any:
        path = f"{self._bucket}/{entry.key}"
        kind = fs.FileType.File
        return fs.FileInfo(path, kind, mtime=entry.modified, size=entry.size)

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001 - pyarrow's
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - pyarrow's
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        raise NotImplementedError

    def move(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError


class _RangeReader(io.RawIOBase):
    """An object as a file: each read is a request for a range."""

    def __init__(self, store: ObjectStore, entry: ObjectEntry) -> None:
        self._store = store
        self._entry = entry
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._entry.size}
        self._position = base[whence] + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._entry.size - self._position)
        if length <= 0:
            return 0
        buffer[:length] = self._store.get_range(self._entry.key, self._position, length)
        self._position += length
        return length
