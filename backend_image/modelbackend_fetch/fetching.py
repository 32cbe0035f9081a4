"""From settings to a model that lies whole in the cache, or to the words that say why it does not."""

from __future__ import annotations

import aiohttp

from .cache import Folder, Record, megabytes
from .download import Download, Wanted
from .failures import PASSING, Failure, FetchError
from .log import logger
from .parts import parts_of
from .progress import Meter
from .settings import Settings
from .sources import Source, source_of
from .transport import session


async def fetch(settings: Settings, meter: Meter, most_bytes: int | None = None) -> str:
    """Every file of the model. Returns what was done, for people. Raises FetchError.

    `most_bytes` is the memory that all of it must fit in, where that is known.
    """
    source = source_of(settings)
    try:
        names = parts_of(settings.target.name)
    except ValueError as error:
        raise FetchError(Failure.BAD_CONFIGURATION, f"{error}.") from None
    folder = Folder(settings.target.parent)
    async with (
        folder.locked(lambda: meter.says("waiting for another instance, which fetches the same file")),
        session(settings.ca_file, settings.stall_seconds) as client,
    ):
        found = [await _one(settings, source, folder, client, meter, name, most_bytes) for name in names]
    fetched = [record for record, is_new in found if is_new]
    total_bytes = sum(record.size_bytes for record, _ in found)
    if not fetched:
        return f"the cache has the model already, {megabytes(total_bytes)}"
    return f"fetched {megabytes(sum(record.size_bytes for record in fetched))} of {megabytes(total_bytes)}"


async def _one(
    settings: Settings,
    source: Source,
    folder: Folder,
    client: aiohttp.ClientSession,
    meter: Meter,
    name: str,
    most_bytes: int | None,
) -> tuple[Record, bool]:
    """The file, and whether it was fetched now. A good copy is touched only when another one is whole and checked."""
    # Of a split model the given hash is that of its first part, by which it is named.
    sha256 = settings.sha256.lower() if name == settings.target.name else ""
    kept = folder.good_copy(name)
    if kept is not None and sha256 and kept.sha256 != sha256:
        kept = None
    if kept is not None and (sha256 or _is_pinned(source, kept)):
        return kept, False
    if settings.offline:
        if kept is not None:
            return kept, False
        words = f"{name} is not in the cache, and the network is not to be asked. Fetch it once without offline."
        raise FetchError(Failure.NOT_CACHED, words)
    meter.begin(name)
    download = Download(
        client, source, folder, settings, meter.received, lambda retry: meter.pauses(retry.words), most_bytes
    )
    try:
        record = await download.run(Wanted(name, sha256, kept))
    except FetchError as failure:
        # Nobody can say whether it still is the newest one; that it was good is known.
        if kept is None or failure.code not in PASSING:
            raise
        logger().warning("the source does not answer; the copy in the cache is taken", file=name, words=failure.words)
        return kept, False
    return record, kept is None or record.changed_ns != kept.changed_ns


def _is_pinned(source: Source, kept: Record) -> bool:
    return bool(source.revision) and kept.version.revision == source.revision
