"""Checkpoint storage by location: the one place that chooses by the scheme of a URI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.checkpoint.local_storage import LocalStorage, seal_of
from millstream.checkpoint.object_storage import ObjectStorage
from millstream.configuration import options
from millstream.object_stores import StoreOptions, is_object_store

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.checkpoint.local_storage import Seal
    from millstream.configuration.configuration import Configuration
    from millstream.contracts.checkpoint_storage import CheckpointStorage


def open_storage(
    location: str | Path,
    *,
    seal: Seal | None = None,
    fsync: bool = True,
    store_options: StoreOptions | None = None,
) -> CheckpointStorage:
    """Open the checkpoint storage at a location; nothing is read or written yet.

    Args:
        location: a path, a ``file:`` URI, or the URI of an object store.
        seal: signs and verifies blobs; None: neither is done.
        fsync: whether files are synced; object stores are durable.
        store_options: endpoint and credentials of an object store.

    Raises:
        ConfigurationError: the scheme is not supported, or the URI is malformed.
    """
    if is_object_store(str(location)):
        return ObjectStorage(str(location), store_options=store_options, seal=seal)
    return LocalStorage(location, fsync=fsync, seal=seal)


def open_storage_of(
    configuration: Configuration, location: str, store_options: StoreOptions | None = None
) -> CheckpointStorage:
    """Open the storage at a location, with the key, flushing and credentials of the options.

    Args:
        configuration: the options.
        location: as of ``open_storage``.
        store_options: those of a job; None: those of the configuration, of no job.

    Raises:
        ConfigurationError: the scheme is not supported, or an option makes no sense.
    """
    return open_storage(
        location,
        seal=seal_of(configuration.get(options.CHECKPOINT_HMAC_KEY_FILE)),
        fsync=configuration.get(options.CHECKPOINT_FSYNC),
        store_options=store_options or StoreOptions.of(configuration),
    )
