"""One file over the wire: resumed where it broke off, and never half of one and half of another."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from .cache import Folder, Partial, Record, megabytes
from .failures import PASSING, Failure, FetchError
from .gguf_header import MAGIC, BadHeaderError, Header, MoreNeededError, read_header
from .settings import Settings
from .sources import Source, Version
from .transport import REFUSAL_BYTES, Answer, get

BLOCK_BYTES = 2**20
FIRST_LOOK_BYTES = 2**20
"""After so many, and at each doubling, the header is read, until it has come whole."""
_CONTENT_RANGE = re.compile(r"^bytes (\d+)-(\d+)/(\d+)$")

Progress = Callable[[int, int | None], None]
"""Bytes of the file that are here, and how many it has, where that is known."""


@dataclass(frozen=True, slots=True)
class Retry:
    words: str
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Wanted:
    name: str
    sha256: str
    """Lower case; empty where nobody said."""
    kept: Record | None
    """The copy that is there already and may still be the one."""


class Download:
    """Of one file from one source into its folder."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        source: Source,
        folder: Folder,
        settings: Settings,
        progress: Progress,
        on_retry: Callable[[Retry], None],
        most_bytes: int | None = None,
    ) -> None:
        self._client = client
        self._source = source
        self._folder = folder
        self._settings = settings
        self._progress = progress
        self._on_retry = on_retry
        self._most_bytes = most_bytes

    async def run(self, wanted: Wanted) -> Record:
        """The file, published. Raises FetchError once it is known not to come, or tries in a row brought nothing."""
        in_vain = 0
        with Partial(self._folder, wanted.name) as partial:
            while True:
                before_bytes = partial.size_bytes
                try:
                    kept = await self._attempt(partial, wanted)
                    if kept is not None:
                        partial.discard()
                        return kept
                    return self._publish(partial, wanted)
                except FetchError as failure:
                    if failure.code is Failure.NOT_A_MODEL:
                        partial.discard()
                    in_vain = 0 if partial.size_bytes > before_bytes else in_vain + 1
                    if failure.code not in PASSING or in_vain >= self._settings.tries:
                        raise
                    retry = Retry(failure.words, self._pause_seconds(in_vain, failure))
                self._on_retry(retry)
                await asyncio.sleep(retry.pause_seconds)

    def _pause_seconds(self, in_vain: int, failure: FetchError) -> float:
        """Doubled with each try in vain, and spread: many instances may have lost the same server at once."""
        pause = self._settings.first_pause_seconds * 2.0 ** max(in_vain - 1, 0)
        spread = min(pause, self._settings.longest_pause_seconds) * random.uniform(0.5, 1.0)
        return max(spread, failure.retry_after_seconds)

    async def _attempt(self, partial: Partial, wanted: Wanted) -> Record | None:
        """The copy that is there, where the source says that it still is the file; None once `partial` is whole."""
        async with get(self._client, self._source.request(wanted.name), self._conditions(partial, wanted)) as answer:
            version = self._source.version(answer.headers)
            if wanted.kept is not None and (answer.status == 304 or wanted.kept.version.same_file(version)):
                return self._folder.renew(wanted.name, wanted.kept, wanted.kept.version.merged(version))
            await self._refuse(answer, wanted)
            self._refuse_known(version, wanted)
            if answer.status == 416:  # nothing is after what we have
                if partial.size_bytes == _whole_length(answer) and not partial.version.other_file(version):
                    return None
                partial.begin(Version(), None)
                raise FetchError(Failure.UNREACHABLE, f"{wanted.name} is shorter than what was received of it.")
            total_bytes = self._place(answer, partial, version)
            self._refuse_too_large(wanted.name, total_bytes)
            self._folder.check_space((total_bytes or 0) - partial.size_bytes)
            await self._receive(answer, partial)
            if total_bytes is not None and partial.size_bytes != total_bytes:
                raise FetchError(Failure.UNREACHABLE, f"{wanted.name} broke off. It is tried again.")
        return None

    def _conditions(self, partial: Partial, wanted: Wanted) -> dict[str, str]:
        if partial.size_bytes and (partial.version.sha256 or partial.version.etag or wanted.sha256):
            headers = {"Range": f"bytes={partial.size_bytes}-"}
            # A sha256 tells at the end; and it may be known for a redirect, whose target has another tag.
            return headers if partial.version.sha256 or wanted.sha256 else headers | {"If-Range": partial.version.etag}
        if wanted.kept is not None and wanted.kept.version.etag:
            return {"If-None-Match": wanted.kept.version.etag}
        return {}

    def _refuse_known(self, version: Version, wanted: Wanted) -> None:
        """Before a byte is received: what the source says of the file, and what we found when it came the last time."""
        refused = self._folder.refused(wanted.name)
        found = version.sha256 or (refused.sha256 if refused and refused.version.same_file(version) else "")
        if wanted.sha256 and found and found != wanted.sha256:
            raise _wrong_checksum(wanted.name, found, wanted.sha256)

    def _refuse_too_large(self, name: str, total_bytes: int | None) -> None:
        """The weights alone: what comes on top of them depends on the architecture, and the server knows it."""
        most = self._most_bytes
        if most is not None and total_bytes is not None and total_bytes > most:
            raise FetchError(
                Failure.BAD_CONFIGURATION,
                f"{name} has {megabytes(total_bytes)}, the memory limit is {megabytes(most)}, and no GPU is asked for "
                "that takes its layers. Raise resources.limits.memory, or take a smaller model.",
            )

    async def _refuse(self, answer: Answer, wanted: Wanted) -> None:
        if answer.status not in (200, 206, 416):
            body = await answer.content.read(REFUSAL_BYTES)
            raise self._source.refusal(wanted.name, answer.status, answer.headers, body)
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            words = f"{wanted.name} comes compressed although that was not asked for. Name another address."
            raise FetchError(Failure.UNEXPECTED_ANSWER, words)

    def _place(self, answer: Answer, partial: Partial, version: Version) -> int | None:
        """Puts `partial` where the body goes on; returns how many bytes the whole file has, where that is said."""
        if answer.status == 206:
            found = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
            # A server that ignores If-Range is caught by its own tag.
            if found and int(found[1]) == partial.size_bytes and not partial.version.other_file(version):
                return int(found[3])
            partial.begin(Version(), None)
            raise FetchError(Failure.UNREACHABLE, "the file changed while it was received. It is received anew.")
        length = answer.headers.get("Content-Length", "")
        total_bytes = int(length) if length.isdecimal() else None
        partial.begin(version, total_bytes)
        return total_bytes

    async def _receive(self, answer: Answer, partial: Partial) -> None:
        look_at: int | None = max(FIRST_LOOK_BYTES, partial.size_bytes)
        async for block in answer.content.iter_chunked(BLOCK_BYTES):
            if partial.size_bytes < len(MAGIC):
                _check_magic(block, partial)
            partial.append(block)
            self._progress(partial.size_bytes, partial.total_bytes)
            if look_at is not None and partial.size_bytes >= look_at:
                look_at = None if self._check_header(partial) else 2 * partial.size_bytes

    def _check_header(self, partial: Partial) -> bool:
        """Whether it has come whole. Raises FetchError for a model that cannot be served, however it goes on."""
        try:
            with partial.path.open("rb") as file:
                header = read_header(file, partial.size_bytes)
        except MoreNeededError:
            return False
        except BadHeaderError as error:
            words = f"{partial.name} begins like a GGUF file, but {error}. Put a whole and sound file there."
            raise FetchError(Failure.NOT_A_MODEL, words) from None
        self._check_length(header, partial)
        self._check_context(header)
        return True

    def _check_length(self, header: Header, partial: Partial) -> None:
        if partial.total_bytes is not None and partial.total_bytes < header.least_bytes:
            raise FetchError(
                Failure.NOT_A_MODEL,
                f"{partial.name} has {partial.total_bytes} bytes, and by its header at least {header.least_bytes}: it "
                "was cut off before it came to its source. Put the whole file there.",
            )

    def _check_context(self, header: Header) -> None:
        wanted, trained = self._settings.context_length, header.trained_context_length
        if wanted is not None and trained is not None and wanted > trained:
            raise FetchError(
                Failure.BAD_CONFIGURATION,
                f"a context of {wanted} tokens is more than the {trained} this model ({header.architecture}) was "
                "trained with. Set a smaller runtime.contextLength, or take another model.",
            )

    def _publish(self, partial: Partial, wanted: Wanted) -> Record:
        if partial.size_bytes == 0:
            raise FetchError(Failure.NOT_A_MODEL, f"{wanted.name} is empty. Put the model's file there.")
        expected = wanted.sha256 or partial.version.sha256
        if expected and partial.sha256 != expected:
            failure = _wrong_checksum(wanted.name, partial.sha256, expected)
            self._folder.refuse(partial)
            raise failure
        partial.total_bytes = partial.size_bytes
        if not self._check_header(partial):
            raise FetchError(Failure.NOT_A_MODEL, f"{wanted.name} ends within its header. Put the whole file there.")
        return self._folder.publish(partial, partial.version)


def _wrong_checksum(name: str, found: str, wanted: str) -> FetchError:
    return FetchError(
        Failure.WRONG_CHECKSUM,
        f"{name} has sha256 {found}, wanted {wanted}. It is another file, or was damaged on its way: "
        "correct model.sha256, or the file at its source.",
    )


def _whole_length(answer: Answer) -> int | None:
    """`bytes */1234`: of an answer 416 (RFC 9110, 14.4)."""
    _, _, length = answer.headers.get("Content-Range", "").partition("*/")
    return int(length) if length.isdecimal() else None


def _check_magic(block: bytes, partial: Partial) -> None:
    """At the first block, so that a page of words ends the download and not only the model's load."""
    if partial.size_bytes == 0 and not (block.startswith(MAGIC) or MAGIC.startswith(block)):
        raise FetchError(
            Failure.NOT_A_MODEL,
            "what comes is not a GGUF file: it does not begin with the letters GGUF. Name a GGUF file; "
            "what comes may be a page for people, or the pointer of a large file.",
        )
