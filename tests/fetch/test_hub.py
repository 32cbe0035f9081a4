"""Files of a model hub: against a fake of its protocol, because no test may reach the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from modelbackend_fetch.failures import Failure
from tests.fetch.fake_hub import COMMIT, FakeHub
from tests.fetch.file_server import breaks_off, once, refuses, serving
from tests.fetch.harness import MEBIBYTE, failure, fetched, model_bytes, sha256

CONTENT = model_bytes(2 * MEBIBYTE)
NAME = "m.gguf"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[FakeHub]:
    (tmp_path / "store").mkdir()
    async with serving(tmp_path) as door, serving(tmp_path / "store") as store:
        hub = FakeHub(door, store)
        hub.add(NAME, CONTENT)
        hub.add("quants/deep m.gguf", CONTENT)
        yield hub


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "of-one-source" / NAME


def asked(hub: FakeHub, **changed: Any) -> dict[str, str]:
    known = {"kind": "huggingFace", "endpoint": hub.door.url, "repo": "org/model", "file": NAME}
    return known | changed


async def test_a_file_comes_from_the_store_and_is_checked_by_the_hubs_sha256(hub: FakeHub, target: Path) -> None:
    await fetched(asked(hub), target)
    assert target.read_bytes() == CONTENT
    assert [request.path for request in hub.door.asked] == [f"/org/model/resolve/main/{NAME}"]


async def test_a_file_in_a_folder_with_a_space_in_its_name(hub: FakeHub, target: Path) -> None:
    await fetched(asked(hub, file="quants/deep m.gguf"), target.with_name("deep m.gguf"))
    assert target.with_name("deep m.gguf").read_bytes() == CONTENT


async def test_the_token_is_the_hubs_alone(hub: FakeHub, target: Path) -> None:
    hub.token = "the-token"
    await fetched(asked(hub), target, token="the-token")
    assert "Authorization" not in hub.store.asked[0].headers


async def test_a_damaged_file_is_refused_by_the_hubs_sha256(hub: FakeHub, target: Path) -> None:
    (hub.store.files / hub.files[NAME]).write_bytes(CONTENT[:-1] + b"?")
    found = await failure(asked(hub), target)
    assert found.code is Failure.WRONG_CHECKSUM
    assert sha256(CONTENT) in found.words


async def test_another_sha256_than_the_hubs_is_refused_before_a_byte_comes(hub: FakeHub, target: Path) -> None:
    hub.store.faults.append(breaks_off(CONTENT, after=0, silent=True))
    found = await failure(asked(hub), target, sha256="ab" * 32)
    assert found.code is Failure.WRONG_CHECKSUM


async def test_a_broken_connection_is_taken_up_although_the_store_has_tags_of_its_own(
    hub: FakeHub, target: Path
) -> None:
    hub.store.faults.append(once(breaks_off(CONTENT, after=MEBIBYTE, etag='"of the store"')))
    await fetched(asked(hub), target)
    assert hub.store.ranges == [None, f"bytes={MEBIBYTE}-"]
    assert target.read_bytes() == CONTENT


async def test_a_copy_of_a_commit_is_good_for_ever_and_one_of_a_branch_is_asked_for(hub: FakeHub, target: Path) -> None:
    await fetched(asked(hub), target)
    await fetched(asked(hub), target)
    assert (len(hub.door.asked), len(hub.store.asked)) == (2, 2), "the second answer's body is not read"
    await fetched(asked(hub, revision=COMMIT), target)
    assert len(hub.door.asked) == 2, "the branch's copy is of that very commit"


async def test_a_hub_that_does_not_answer_leaves_the_copy_of_a_branch_in_use(hub: FakeHub, target: Path) -> None:
    await fetched(asked(hub), target)
    hub.door.faults.insert(0, refuses(502))
    assert await fetched(asked(hub), target) == "the cache has the model already, 2 MB"


@pytest.mark.parametrize(
    ("changed", "gated", "code", "words"),
    [
        ({"repo": "org/other"}, False, Failure.ACCESS_DENIED, "org/other does not exist, or is private"),
        ({}, True, Failure.ACCESS_DENIED, "org/model is gated: accept its conditions"),
        ({"revision": "v2"}, False, Failure.MISSING, "org/model has no revision v2"),
        ({"file": "x/n.gguf"}, False, Failure.MISSING, "org/model has no file m.gguf at main"),
    ],
    ids=["no such repository", "a gated one", "no such revision", "no such file"],
)
async def test_the_hubs_refusals_are_told_in_words(
    hub: FakeHub, target: Path, changed: dict[str, str], gated: bool, code: Failure, words: str
) -> None:
    hub.gated = gated
    found = await failure(asked(hub, **changed), target)
    assert found.code is code
    assert words in found.words
    assert len(hub.door.asked) == 1
