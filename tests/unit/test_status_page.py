"""The status page: what is on it, in which order, and to whom it is served."""

import aiohttp
import pytest

from modelbackend_operator.status_page import page
from modelbackend_operator.status_server import status_page_served
from tests.browser.objects import NAMES, backends, claims
from tests.kubectl.examples import serving
from tests.unit.builders import later

PAGE = page(backends(), claims(), later(20))


def section(name: str) -> str:
    return PAGE.split(f'<section id="{name}">')[1].split("</section>")[0]


def rows(name: str) -> list[str]:
    return section(name).split("<tbody>")[1].split("\n<tr>")[1:]


def test_every_backend_has_its_row_with_its_state_and_what_it_waits_for() -> None:
    found = dict(zip(NAMES, rows("backends"), strict=True))
    assert '<td class="good">ready</td>' in found["smollm2"]
    assert '<td class="bad">stalled: Unschedulable</td>' in found["llama-3.2-1b"]
    assert "3 Insufficient nvidia.com/gpu" in found["llama-3.2-1b"]
    assert "being deleted" in found["gemma-3-1b"]


def test_a_stop_in_progress_shows_its_stage_its_requests_and_its_deadline() -> None:
    draining, busy = rows("stops")
    for words in ("Draining", "BackendDeleted", "<td>2</td>", "12:00:30 UTC"):
        assert words in draining
    assert "requests run past the drain deadline" in busy


def test_withheld_ports_come_first_with_what_would_release_them() -> None:
    assert [row.split("</td>")[0].removeprefix("<td>") for row in rows("ports")] == ["30012", "30055", "30041", "30007"]
    assert "once the node is back" in rows("ports")[0]


def test_the_last_shutdowns_are_told_latest_first_with_what_they_cost() -> None:
    first, second = rows("shutdowns")
    assert "Forced" in first
    assert "<td>2</td>" in first
    assert "Drained" in second


def test_nothing_that_others_write_becomes_markup() -> None:
    raw = serving()
    raw["status"]["endpoints"][0]["address"] = "<script>alert(1)</script>"
    assert "<script>" not in page([raw], [], later(0))
    assert "&lt;reason&gt;" in PAGE


def test_an_empty_cluster_and_a_backend_that_was_just_made_have_their_page() -> None:
    assert "No ModelBackend." in page([], [], later(0))
    assert "not looked at yet" in page([{**serving(), "status": {}}], [], later(0))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8082", 200),
        ("localhost:9", 200),
        ("[::1]:8082", 200),
        ("evil.example", 403),
        ("evil.example:8082", 403),
    ],
)
async def test_it_answers_to_its_own_names_only(host: str, status: int) -> None:
    async with (
        status_page_served(lambda: PAGE, 0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/", headers={"Host": host}) as answer,
    ):
        assert answer.status == status
        assert ("gemma-3-1b" in await answer.text()) == (status == 200)


async def test_it_is_read_only_and_neither_stored_nor_framed() -> None:
    async with status_page_served(lambda: PAGE, 0) as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/") as answer:
            assert answer.headers["Cache-Control"] == "no-store"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        async with session.post(f"http://127.0.0.1:{port}/") as answer:
            assert answer.status == 405
