"""Looks at the weights file before llama.cpp does, so that what is wrong with it is said in words."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from .exits import ExitCode, UnservableError

MAGIC = b"GGUF"
HASH_BLOCK_BYTES = 8 * 2**20


def verify(path: Path, sha256: str, keep_going: Callable[[float], bool]) -> None:
    """Raises UnservableError unless `path` is a GGUF file with the given hash ("" asks for none).

    Hashing a large file takes minutes: `keep_going` is called with the fraction done and ends it by False.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise UnservableError(
                    ExitCode.BAD_MODEL,
                    f"model file {path} is not a GGUF file: it does not begin with the letters GGUF. "
                    "Convert the model to GGUF, or correct the path; a file of a few hundred bytes is often a "
                    "Git LFS pointer or an error page of the download.",
                )
            size_bytes = path.stat().st_size
            if sha256:
                _verify_hash(path, sha256.lower(), size_bytes, keep_going)
    except FileNotFoundError:
        raise UnservableError(
            ExitCode.MODEL_MISSING,
            f"model file {path} does not exist. Correct the path, or put the file on the volume.",
        ) from None
    except OSError as error:
        raise UnservableError(
            ExitCode.MODEL_MISSING,
            f"model file {path} cannot be read: {error.strerror}. It must be a file that user "
            "and group of this process may read.",
        ) from None


def _verify_hash(path: Path, wanted: str, size_bytes: int, keep_going: Callable[[float], bool]) -> None:
    digest = hashlib.sha256()
    done_bytes = 0
    with path.open("rb") as file:
        while block := file.read(HASH_BLOCK_BYTES):
            digest.update(block)
            done_bytes += len(block)
            if not keep_going(done_bytes / max(size_bytes, 1)):
                return
    if digest.hexdigest() != wanted:
        raise UnservableError(
            ExitCode.BAD_MODEL,
            f"model file {path} has sha256 {digest.hexdigest()}, wanted {wanted}. The file is damaged or is "
            "another one: fetch it again, or correct the hash.",
        )
