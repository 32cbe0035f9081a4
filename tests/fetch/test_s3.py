"""Objects of an S3 bucket, from a server that checks each signature."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelbackend_fetch.failures import Failure
from tests.fetch.harness import MEBIBYTE, failure, fetched, model_bytes, process, sha256
from tests.fetch.s3_server import BUCKET, S3Server, s3_server

CONTENT = model_bytes(2 * MEBIBYTE)
# Letters that a signature must encode exactly once.
KEY = "llamas/v 1+2/größe (a&b=c).gguf"
PARTS = ("big-00001-of-00002.gguf", "big-00002-of-00002.gguf")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server({KEY: CONTENT, PARTS[0]: model_bytes(1000, 1), PARTS[1]: model_bytes(1000, 2)}) as server:
        yield server


def asked(server: S3Server, **changed: Any) -> dict[str, str]:
    return {"kind": "s3", "endpoint": server.url, "bucket": BUCKET, "key": KEY} | changed


def keys(server: S3Server, **changed: str) -> dict[str, str]:
    known = {"access_key_id": server.access_key_id, "secret_access_key": server.secret_access_key}
    return known | changed


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / Path(KEY).name


async def test_an_object_is_fetched_with_a_signature_and_once(server: S3Server, target: Path) -> None:
    await fetched(asked(server), target, **keys(server))
    assert target.read_bytes() == CONTENT
    assert await fetched(asked(server), target, **keys(server)) == "the cache has the model already, 2 MB"


async def test_a_part_that_has_come_is_not_fetched_again(server: S3Server, target: Path) -> None:
    """A process on a disk that was full left it."""
    async with process(asked(server), target, prefix=("prlimit", f"--fsize={MEBIBYTE}"), **keys(server)) as first:
        assert await first.wait() == Failure.NO_SPACE
    await fetched(asked(server), target, **keys(server), sha256=sha256(CONTENT))
    assert target.read_bytes() == CONTENT


async def test_every_part_of_a_split_model_is_fetched(server: S3Server, target: Path) -> None:
    await fetched(asked(server, key=PARTS[0]), target.with_name(PARTS[0]), **keys(server))
    assert [target.with_name(name).read_bytes() for name in PARTS] == [model_bytes(1000, 1), model_bytes(1000, 2)]


@pytest.mark.parametrize(
    ("changed_keys", "changed", "code", "words"),
    [
        ({"secret_access_key": "hush-wrong"}, {}, Failure.ACCESS_DENIED, "SignatureDoesNotMatch"),
        ({"access_key_id": "hush-unknown"}, {}, Failure.ACCESS_DENIED, "InvalidAccessKeyId"),
        ({"access_key_id": ""}, {}, Failure.ACCESS_DENIED, "403"),
        ({}, {"key": "nothing.gguf"}, Failure.MISSING, "NoSuchKey"),
        ({}, {"bucket": "elsewhere"}, Failure.ACCESS_DENIED, "AccessDenied"),
    ],
    ids=["wrong secret", "unknown key", "no key", "no such object", "another bucket"],
)
async def test_what_the_server_refuses_is_told_by_its_code(
    server: S3Server, target: Path, changed_keys: dict[str, str], changed: dict[str, str], code: Failure, words: str
) -> None:
    found = await failure(asked(server, **changed), target, **keys(server, **changed_keys))
    assert found.code is code
    assert words in found.words
    assert "hush" not in found.words
