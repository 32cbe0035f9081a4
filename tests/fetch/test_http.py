"""Files by HTTP: whole, once, resumed, and with every failure by its name."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from modelbackend_fetch.failures import Failure
from tests.fetch.file_server import FileServer, breaks_off, once, refuses, serving
from tests.fetch.harness import MEBIBYTE, failure, fetched, http, left_in, model_bytes, sha256

CONTENT = model_bytes(3 * MEBIBYTE)
NAME = "m.gguf"
PUBLISHED = {".lock", NAME, f"{NAME}.json"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FileServer]:
    files = tmp_path / "served"
    files.mkdir()
    (files / NAME).write_bytes(CONTENT)
    async with serving(files) as server:
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "of-one-source" / NAME


def tag(server: FileServer) -> str:
    """As the server forms it."""
    found = (server.files / NAME).stat()
    return f'"{found.st_mtime_ns:x}-{found.st_size:x}"'


def change(server: FileServer, content: bytes) -> None:
    (server.files / NAME).unlink()
    (server.files / NAME).write_bytes(content)


# -- once, and whole ---------------------------------------------------------------------------------------------------


async def test_a_file_is_fetched_whole_and_nothing_else_is_left(server: FileServer, target: Path) -> None:
    done = await fetched(http(server.path(NAME)), target)
    assert target.read_bytes() == CONTENT
    assert left_in(target.parent) == PUBLISHED
    assert done == "fetched 3 MB of 3 MB"


async def test_a_copy_that_the_source_still_has_is_not_fetched_again(server: FileServer, target: Path) -> None:
    await fetched(http(server.path(NAME)), target)
    before = target.stat()
    assert await fetched(http(server.path(NAME)), target) == "the cache has the model already, 3 MB"
    assert target.stat() == before
    assert server.asked[-1].headers["If-None-Match"] == tag(server)


async def test_a_copy_with_the_given_sha256_is_taken_without_a_question(server: FileServer, target: Path) -> None:
    await fetched(http(server.path(NAME)), target, sha256=sha256(CONTENT))
    await fetched(http(server.path(NAME)), target, sha256=sha256(CONTENT).upper())
    assert len(server.asked) == 1


async def test_a_changed_file_is_fetched_and_whoever_reads_the_old_one_reads_on(
    server: FileServer, target: Path
) -> None:
    await fetched(http(server.path(NAME)), target)
    newer = model_bytes(MEBIBYTE, seed=1)
    change(server, newer)
    with target.open("rb") as old:
        await fetched(http(server.path(NAME)), target)
        assert old.read() == CONTENT
    assert target.read_bytes() == newer


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_source_that_cannot_answer_leaves_the_good_copy_in_use(
    server: FileServer, target: Path, status: int
) -> None:
    await fetched(http(server.path(NAME)), target)
    server.faults.append(refuses(status))
    assert await fetched(http(server.path(NAME)), target) == "the cache has the model already, 3 MB"


@pytest.mark.parametrize("status", [401, 404])
async def test_a_source_that_says_no_is_a_failure_and_the_copy_is_kept(
    server: FileServer, target: Path, status: int
) -> None:
    await fetched(http(server.path(NAME)), target)
    server.faults.append(refuses(status))
    await failure(http(server.path(NAME)), target)
    assert target.read_bytes() == CONTENT


async def test_a_copy_that_somebody_changed_is_fetched_again(server: FileServer, target: Path) -> None:
    await fetched(http(server.path(NAME)), target, sha256=sha256(CONTENT))
    target.write_bytes(b"GGUF")
    await fetched(http(server.path(NAME)), target, sha256=sha256(CONTENT))
    assert target.read_bytes() == CONTENT


async def test_a_copy_whose_record_was_lost_in_a_crash_is_fetched_again(server: FileServer, target: Path) -> None:
    await fetched(http(server.path(NAME)), target)
    (target.parent / f"{NAME}.json").write_text("{")
    await fetched(http(server.path(NAME)), target)
    assert len(server.asked) == 2
    assert left_in(target.parent) == PUBLISHED


async def test_offline_a_copy_is_taken_and_nothing_is_asked(server: FileServer, target: Path) -> None:
    found = await failure(http(server.path(NAME)), target, offline=True)
    assert found.code is Failure.NOT_CACHED
    await fetched(http(server.path(NAME)), target)
    await fetched(http(server.path(NAME)), target, offline=True)
    assert len(server.asked) == 1


async def test_every_part_of_a_split_model_is_fetched(server: FileServer, target: Path) -> None:
    names = [f"big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for seed, name in enumerate(names):
        (server.files / name).write_bytes(model_bytes(1000, seed))
    first = target.with_name(names[0])
    await fetched(http(server.path(names[0]) + "?key=1"), first, sha256=sha256(model_bytes(1000, 0)))
    assert [target.with_name(name).read_bytes() for name in names] == [model_bytes(1000, seed) for seed in range(3)]
    assert [request.query_string for request in server.asked] == ["key=1"] * 3


async def test_a_model_is_named_by_its_first_part(server: FileServer, target: Path) -> None:
    name = "big-00002-of-00003.gguf"
    found = await failure(http(server.path(name)), target.with_name(name))
    assert (found.code, server.asked) == (Failure.BAD_CONFIGURATION, [])
    assert "-00001-of-00003" in found.words


# -- resumed -----------------------------------------------------------------------------------------------------------


async def test_a_connection_that_breaks_is_taken_up_where_it_broke(server: FileServer, target: Path) -> None:
    server.faults.append(once(breaks_off(CONTENT, after=2 * MEBIBYTE, etag=tag(server))))
    await fetched(http(server.path(NAME)), target)
    assert target.read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={2 * MEBIBYTE}-"]
    assert server.asked[1].headers["If-Range"] == tag(server)


async def test_a_file_that_changed_meanwhile_is_never_half_of_each(server: FileServer, target: Path) -> None:
    """This server ignores If-Range with a tag: its answer's own tag tells."""
    server.faults.append(once(breaks_off(CONTENT, after=MEBIBYTE, etag=tag(server))))
    newer = model_bytes(2 * MEBIBYTE, seed=1)

    async def changes(request: web.Request) -> None:
        if "Range" in request.headers and (server.files / NAME).read_bytes() != newer:
            change(server, newer)

    server.faults.append(changes)
    await fetched(http(server.path(NAME)), target, tries=3)
    assert target.read_bytes() == newer
    assert server.ranges == [None, f"bytes={MEBIBYTE}-", None]


async def test_a_server_that_knows_no_ranges_is_heard_from_the_beginning(server: FileServer, target: Path) -> None:
    async def whole(_: web.Request) -> web.Response:
        return web.Response(body=CONTENT, headers={"ETag": '"1"'})

    server.faults += [once(breaks_off(CONTENT, after=MEBIBYTE, etag='"1"')), whole]
    await fetched(http(server.path(NAME)), target)
    assert target.read_bytes() == CONTENT


async def test_a_weak_tag_names_no_bytes(server: FileServer, target: Path) -> None:
    server.faults.append(once(breaks_off(CONTENT, after=MEBIBYTE, etag='W/"1"')))
    await fetched(http(server.path(NAME)), target)
    assert server.ranges == [None, None]


async def test_a_known_sha256_is_enough_to_go_on(server: FileServer, target: Path) -> None:
    server.faults.append(once(breaks_off(CONTENT, after=MEBIBYTE)))
    await fetched(http(server.path(NAME)), target, sha256=sha256(CONTENT))
    assert server.ranges == [None, f"bytes={MEBIBYTE}-"]


async def test_a_file_that_became_shorter_is_received_anew(server: FileServer, target: Path) -> None:
    shorter = model_bytes(1000, seed=1)
    server.faults.append(once(breaks_off(CONTENT, after=MEBIBYTE)))
    change(server, shorter)
    await fetched(http(server.path(NAME)), target, sha256=sha256(shorter), tries=3)
    assert target.read_bytes() == shorter


async def test_a_last_byte_that_was_received_before_the_end_is_not_received_twice(
    server: FileServer, target: Path
) -> None:
    """All bytes came, and the process died before it published them."""
    server.faults += [once(breaks_off(CONTENT + b"x", after=len(CONTENT), etag=tag(server))), once(refuses(404))]
    await failure(http(server.path(NAME)), target, sha256=sha256(CONTENT))
    await fetched(http(server.path(NAME)), target, sha256=sha256(CONTENT))
    assert server.ranges == [None, *[f"bytes={len(CONTENT)}-"] * 2]


async def test_what_has_come_is_kept_for_the_next_process(server: FileServer, target: Path) -> None:
    server.faults += [once(breaks_off(CONTENT, after=MEBIBYTE, etag=tag(server))), once(refuses(404))]
    await failure(http(server.path(NAME)), target)
    await fetched(http(server.path(NAME)), target)
    assert server.ranges == [None, *[f"bytes={MEBIBYTE}-"] * 2]
    assert target.read_bytes() == CONTENT


async def test_silence_is_no_progress_and_ends(server: FileServer, target: Path) -> None:
    server.faults.append(breaks_off(CONTENT, after=MEBIBYTE, etag=tag(server), silent=True))
    found = await failure(http(server.path(NAME)), target, stall_seconds=1.0, tries=2)
    assert found.code is Failure.STALLED
    assert len(server.asked) >= 3, "the first brought something, so two more were made"


# -- named failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "asked"),
    [
        (400, Failure.UNEXPECTED_ANSWER, 1),
        (401, Failure.ACCESS_DENIED, 1),
        (403, Failure.ACCESS_DENIED, 1),
        (404, Failure.MISSING, 1),
        (410, Failure.MISSING, 1),
        (204, Failure.UNEXPECTED_ANSWER, 1),
        (429, Failure.UNREACHABLE, 2),
        (500, Failure.UNREACHABLE, 2),
        (503, Failure.UNREACHABLE, 2),
    ],
)
async def test_what_a_status_means_and_whether_it_is_asked_again(
    server: FileServer, target: Path, status: int, code: Failure, asked: int
) -> None:
    server.faults.append(refuses(status))
    found = await failure(http(server.path(NAME)), target)
    assert (found.code, len(server.asked)) == (code, asked)
    assert str(status) in found.words
    assert left_in(target.parent) == {".lock"}


async def test_a_server_that_asks_for_time_gets_it(server: FileServer, target: Path) -> None:
    server.faults.append(refuses(503, Retry_After="120"))
    found = await failure(http(server.path(NAME)), target, tries=1)
    assert found.retry_after_seconds == 120


async def test_nobody_listens(target: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    found = await failure(http(f"http://127.0.0.1:{port}/{NAME}"), target)
    assert found.code is Failure.UNREACHABLE
    assert f"127.0.0.1:{port}" in found.words


async def test_a_name_that_nobody_knows(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    found = await failure(http(f"http://models.example.invalid/{NAME}"), target)
    assert found.code is Failure.UNKNOWN_HOST
    assert "models.example.invalid" in found.words


async def test_a_wrong_checksum_is_told_with_both_values_and_the_same_file_is_not_fetched_again(
    server: FileServer, target: Path
) -> None:
    for _ in range(2):
        found = await failure(http(server.path(NAME)), target, sha256="ab" * 32, stall_seconds=5.0)
        assert found.code is Failure.WRONG_CHECKSUM
        assert sha256(CONTENT) in found.words
        assert "ab" * 32 in found.words
        assert left_in(target.parent) == {".lock", f"{NAME}.refused.json"}
        # Whoever waits for the body of the second answer waits in vain.
        server.faults.append(once(breaks_off(CONTENT, after=0, etag=tag(server), silent=True)))
    assert len(server.asked) == 2
    server.faults.clear()
    change(server, CONTENT[:-1])
    await fetched(http(server.path(NAME)), target, sha256=sha256(CONTENT[:-1]))
    assert left_in(target.parent) == PUBLISHED


async def test_a_wrong_checksum_costs_the_good_copy_nothing(server: FileServer, target: Path) -> None:
    await fetched(http(server.path(NAME)), target)
    await failure(http(server.path(NAME)), target, sha256="ab" * 32)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"<!doctype html>", "GGUF"), (b"version https://git-lfs.github.com/spec/v1\n", "GGUF"), (b"", "empty")],
    ids=["a page", "a pointer", "nothing"],
)
async def test_what_is_no_model_is_never_published(server: FileServer, target: Path, body: bytes, words: str) -> None:
    change(server, body)
    found = await failure(http(server.path(NAME)), target)
    assert found.code is Failure.NOT_A_MODEL
    assert words in found.words
    assert NAME not in left_in(target.parent)


async def test_a_file_that_does_not_fit_is_refused_before_it_comes(server: FileServer, target: Path) -> None:
    async def huge(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(10**15)})
        await response.prepare(request)
        return response

    server.faults.append(huge)
    found = await failure(http(server.path(NAME)), target)
    assert found.code is Failure.NO_SPACE
    assert "1 000 000 000 MB" in found.words


async def test_a_model_that_no_memory_holds_is_refused_before_it_comes(server: FileServer, target: Path) -> None:
    size = len(CONTENT)
    found = await failure(http(server.path(NAME)), target, most_bytes=size - 1)
    assert found.code is Failure.BAD_CONFIGURATION
    assert "has 3 MB, the memory limit is 3 MB, and no GPU" in found.words
    assert left_in(target.parent) == {".lock"}
    await fetched(http(server.path(NAME)), target, most_bytes=size)


async def test_an_answer_that_is_compressed_is_refused(server: FileServer, target: Path) -> None:
    server.faults.append(refuses(200, Content_Encoding="gzip"))
    assert (await failure(http(server.path(NAME)), target)).code is Failure.UNEXPECTED_ANSWER


# -- redirects ---------------------------------------------------------------------------------------------------------


async def test_redirects_are_followed(server: FileServer, target: Path) -> None:
    server.faults.append(once(refuses(302, Location=f"/{NAME}?signed=yes")))
    await fetched(http(server.path("elsewhere.gguf")), target)
    assert target.read_bytes() == CONTENT


async def test_redirects_that_lead_nowhere_end(server: FileServer, target: Path) -> None:
    server.faults.append(refuses(302, Location=f"/{NAME}"))
    found = await failure(http(server.path(NAME)), target)
    assert found.code is Failure.UNEXPECTED_ANSWER
    assert len(server.asked) == 11


@pytest.mark.parametrize("location", ["ftp://127.0.0.1/m.gguf", "file:///etc/passwd", "http://", ""])
async def test_a_redirect_to_what_is_no_web_address_is_refused(server: FileServer, target: Path, location: str) -> None:
    server.faults.append(refuses(302, Location=location))
    assert (await failure(http(server.path(NAME)), target)).code is Failure.UNEXPECTED_ANSWER


async def test_what_is_secret_goes_to_the_asked_origin_alone(server: FileServer, target: Path, tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "X-Api-Key").write_text("the-key\n")
    (headers / "..data").write_text("the kubelet's own")
    async with serving(server.files) as other:
        server.faults.append(refuses(307, Location=other.path(NAME)))
        await fetched(http(server.path(NAME)), target, token="the-token", headers_folder=headers)
    (asked,), (redirected,) = server.asked, other.asked
    assert (asked.headers["Authorization"], asked.headers["X-Api-Key"]) == ("Bearer the-token", "the-key")
    assert not {"Authorization", "X-Api-Key", "..data"} & {*redirected.headers}


async def test_a_secret_that_is_no_header_is_refused_without_its_value(server: FileServer, target: Path) -> None:
    found = await failure(http(server.path(NAME)), target, token="two\nlines")
    assert (found.code, server.asked) == (Failure.BAD_CONFIGURATION, [])
    assert "two" not in found.words
