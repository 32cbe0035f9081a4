"""The status page in a real browser: Chromium from Debian, without a head. Run by `make browser-tests`.

SCREENSHOT=1 keeps the picture that the documentation shows.
"""

import asyncio
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest

from modelbackend_operator.status_page import page
from modelbackend_operator.status_server import status_page_served
from tests.browser.objects import NAMES, backends, claims
from tests.unit.builders import later

BROWSER = "chromium-headless-shell"
PICTURE = Path(__file__).parents[2] / "docs/images/status-page.png"
WIDTH, HEIGHT = 1400, 1180
FLAGS = ("--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=1000")


@contextmanager
def served() -> Iterator[str]:
    """The page's address, served from a thread of its own."""
    loop, opened, done = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    ports: list[int] = []

    async def serve() -> None:
        async with status_page_served(lambda: page(backends(), claims(), later(20)), 0) as port:
            ports.append(port)
            opened.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    opened.wait(timeout=20)
    try:
        yield f"http://127.0.0.1:{ports[0]}/"
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()


@pytest.fixture
def browser() -> str:
    found = shutil.which(BROWSER)
    if found is None:
        pytest.fail(f"{BROWSER} is not installed: `make browser-tests` installs it (Debian, 100 MB)", pytrace=False)
    return found


def run(browser: str, folder: Path, *flags: str) -> str:
    command = [browser, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Cells(HTMLParser):
    """The text of every table cell, as the browser's document has it."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, _: object) -> None:
        if tag in ("td", "th"):
            self._inside = True
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.cells[-1] += data


def test_a_browser_shows_every_backend_stop_port_and_shutdown(browser: str, tmp_path: Path) -> None:
    with served() as address:
        document = run(browser, tmp_path, "--dump-dom", address)
    shown = Cells()
    shown.feed(document)
    assert {f"models/{name}" for name in NAMES} <= set(shown.cells)
    assert {"Draining", "Withheld", "30012", "Forced", "stalled: Unschedulable"} <= set(shown.cells)
    assert any('modelbackend.dev/attest="6f1c2d30 <reason>"' in cell for cell in shown.cells)


def test_its_style_is_applied_and_its_picture_is_kept(browser: str, tmp_path: Path) -> None:
    """A content security policy that forbids its own style would leave black on white, in the browser's font."""
    picture = tmp_path / "page.png"
    with served() as address:
        run(browser, tmp_path, f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={picture}", address)
        computed = run(browser, tmp_path, "--dump-dom", address)
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (WIDTH, HEIGHT)
    assert "--good" in computed
    if os.environ.get("SCREENSHOT") == "1":
        PICTURE.write_bytes(data)
