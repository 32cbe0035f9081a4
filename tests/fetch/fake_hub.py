"""A fake of the Hugging Face Hub, with as much of its protocol as the fetcher uses.

It redirects from the revision's address to a store on another origin, names the file's sha256 and the commit on the
way, and refuses with the hub's own codes. What is not faked: the real hub's answers change, and no test here notices.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from aiohttp import web

from tests.fetch.file_server import FileServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """`door` is the hub, `store` has the bytes: a file lies there under its sha256."""

    door: FileServer
    store: FileServer
    repo: str = "org/model"
    token: str = ""
    gated: bool = False

    def __post_init__(self) -> None:
        self.door.faults.append(self.answer)

    def add(self, name: str, content: bytes) -> None:
        self.files = {**getattr(self, "files", {}), name: hashlib.sha256(content).hexdigest()}
        (self.store.files / self.files[name]).write_bytes(content)

    async def answer(self, request: web.Request) -> web.Response:
        repo, _, rest = request.path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        if repo != self.repo or (self.token and request.headers.get("Authorization") != f"Bearer {self.token}"):
            return web.Response(status=401, headers={"X-Error-Code": "RepoNotFound"})
        if self.gated:
            return web.Response(status=403, headers={"X-Error-Code": "GatedRepo"})
        if revision not in ("main", COMMIT):
            return web.Response(status=404, headers={"X-Error-Code": "RevisionNotFound"})
        if name not in self.files:
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound"})
        told = {"X-Repo-Commit": COMMIT, "X-Linked-ETag": f'"{self.files[name]}"'}
        return web.Response(status=302, headers=told | {"Location": self.store.path(self.files[name]) + "?sig=hush"})
