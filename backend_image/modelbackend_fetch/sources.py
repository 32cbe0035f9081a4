"""Where a file can come from: how it is asked for, and what the place says about it.

The three differ in the request and in the words; the bytes come by HTTP from each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from yarl import URL

from . import s3_signature
from .failures import Failure, FetchError
from .settings import S3, Http, HuggingFace, Settings
from .transport import Request, place, refusal

_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")


@dataclass(frozen=True, slots=True)
class Version:
    """What a source says that the bytes are: enough to tell whether two answers speak of the same file."""

    etag: str = ""
    """A strong one (RFC 9110, 8.8.3), or empty."""
    sha256: str = ""
    revision: str = ""

    def same_file(self, other: Version) -> bool:
        """By what both name; where they share nothing, it is not known to be the same."""
        return next(iter(self._agreements(other)), False)

    def other_file(self, other: Version) -> bool:
        """By what both name; where they share nothing, it is not known to be another."""
        return not next(iter(self._agreements(other)), True)

    def _agreements(self, other: Version) -> list[bool]:
        pairs = ((self.sha256, other.sha256), (self.etag, other.etag))
        return [mine == theirs for mine, theirs in pairs if mine and theirs]

    def merged(self, other: Version) -> Version:
        """Of the same file: what `other` says where it says something."""
        return Version(other.etag or self.etag, other.sha256 or self.sha256, other.revision or self.revision)


def _beside(path: str, name: str) -> str:
    """Text rather than a path type: of an object's key, two slashes in a row are part."""
    return path.rpartition("/")[0] + f"/{name}" if "/" in path else name


class Source(Protocol):
    revision: str
    """Of a place where a name is for ever the same file; empty where it may change."""

    def request(self, name: str) -> Request:
        """For the file that is called so in the cache: the one that the settings name, or one beside it."""
        ...

    def version(self, headers: Mapping[str, str]) -> Version: ...

    def refusal(self, name: str, status: int, headers: Mapping[str, str], body: bytes, /) -> FetchError:
        """What a status that is no success means, in this source's words."""
        ...


def source_of(settings: Settings) -> Source:
    """Raises FetchError where the settings do not go together."""
    match settings.source:
        case Http():
            return HttpSource(settings.source, settings.target.name, _headers(settings))
        case HuggingFace():
            return HubSource(settings.source, settings.target.name, _headers(settings))
        case S3():
            return S3Source(settings.source, settings)


def _headers(settings: Settings) -> dict[str, str]:
    """From a mounted Secret. Its keys that begin with a dot are the kubelet's own."""
    found: dict[str, str] = {}
    if settings.headers_folder is not None:
        files = sorted(settings.headers_folder.iterdir())
        found = {file.name: file.read_text().strip() for file in files if not file.name.startswith(".")}
    if token := settings.token.get_secret_value().strip():
        found["Authorization"] = f"Bearer {token}"
    if any(not value.isprintable() for value in found.values()):
        raise FetchError(
            Failure.BAD_CONFIGURATION, "a header or token in the Secret has a line break or the like in it."
        )
    return found


def _strong(etag: str) -> str:
    return "" if etag.startswith("W/") else etag


class HttpSource:
    revision = ""

    def __init__(self, asked: Http, first: str, secret_headers: Mapping[str, str]) -> None:
        self._url = URL(asked.url)
        self._first = first
        self._secret_headers = secret_headers

    def request(self, name: str) -> Request:
        url = self._url if name == self._first else self._url.with_name(name).with_query(self._url.query)
        return Request(url, self._secret_headers)

    def version(self, headers: Mapping[str, str]) -> Version:
        return Version(etag=_strong(headers.get("ETag", "")))

    def refusal(self, name: str, status: int, headers: Mapping[str, str], _: bytes) -> FetchError:
        return refusal(status, headers, place(self.request(name).url))


class HubSource:
    """The protocol of the Hugging Face Hub: `/<repo>/resolve/<revision>/<file>`, which redirects to the bytes.

    The first answer names the file's sha256 (for those that are in Git LFS or Xet) and the commit:
    https://huggingface.co/docs/hub/en/api, and the headers that the official client reads.
    """

    def __init__(self, asked: HuggingFace, first: str, secret_headers: Mapping[str, str]) -> None:
        self._first = first
        self.revision = asked.revision if _COMMIT.match(asked.revision) else ""
        self._asked = asked
        self._secret_headers = secret_headers

    def request(self, name: str) -> Request:
        file = self._asked.file if name == self._first else _beside(self._asked.file, name)
        base = URL(self._asked.endpoint.rstrip("/") + "/")
        # A branch may have a slash in its name; a segment of the path is encoded, so it takes only one.
        steps = (*self._asked.repo.split("/"), "resolve", self._asked.revision.replace("/", "%2F"))
        encoded = "/".join((*steps, *(URL.build(path=step).raw_path for step in file.split("/"))))
        return Request(base.join(URL(encoded, encoded=True)), self._secret_headers)

    def version(self, headers: Mapping[str, str]) -> Version:
        linked = headers.get("X-Linked-ETag", "").strip('"')
        return Version(
            etag=_strong(headers.get("ETag", "")),  # the store's
            sha256=linked if _SHA256.match(linked) else "",
            revision=headers.get("X-Repo-Commit", ""),
        )

    def refusal(self, name: str, status: int, headers: Mapping[str, str], _: bytes) -> FetchError:
        where, code, repo = place(self.request(name).url), headers.get("X-Error-Code", ""), self._asked.repo
        if code == "GatedRepo":
            words = f"{repo} is gated: accept its conditions on the hub with the account of tokenSecretRef."
            return FetchError(Failure.ACCESS_DENIED, words)
        if code == "RepoNotFound":  # with status 401, also for one that exists and is private
            return FetchError(
                Failure.ACCESS_DENIED,
                f"{repo} does not exist, or is private: correct model.source.huggingFace.repo, or name a token that "
                "may read it in tokenSecretRef.",
            )
        if code == "RevisionNotFound":
            words = f"{repo} has no revision {self._asked.revision}. Correct model.source.huggingFace.revision."
            return FetchError(Failure.MISSING, words)
        if code == "EntryNotFound":
            words = f"{repo} has no file {name} at {self._asked.revision}. Correct model.source.huggingFace.file."
            return FetchError(Failure.MISSING, words)
        return refusal(status, headers, where, code if code.isalnum() else "")


class S3Source:
    """Addressed by path, which every S3 server understands, whatever letters the bucket's name has."""

    revision = ""

    def __init__(self, asked: S3, settings: Settings) -> None:
        endpoint = asked.endpoint or f"https://s3.{asked.region}.amazonaws.com"
        self._asked = asked
        self._first = settings.target.name
        self._base = URL(endpoint.rstrip("/"))
        self._keys = s3_signature.Keys(
            settings.access_key_id.get_secret_value(),
            settings.secret_access_key.get_secret_value(),
            settings.session_token.get_secret_value(),
        )

    def request(self, name: str) -> Request:
        path = self._base.raw_path.rstrip("/") + s3_signature.quoted(f"/{self._asked.bucket}/{self._key(name)}")
        url = URL(f"{self._base.origin()}{path}", encoded=True)
        is_public = not self._keys.access_key_id
        return Request(url, {} if is_public else s3_signature.headers(url, self._asked.region, self._keys))

    def _key(self, name: str) -> str:
        return self._asked.key if name == self._first else _beside(self._asked.key, name)

    def version(self, headers: Mapping[str, str]) -> Version:
        return Version(etag=_strong(headers.get("ETag", "")))

    def refusal(self, name: str, status: int, headers: Mapping[str, str], body: bytes) -> FetchError:
        """Of the body only the code: the rest repeats what was signed."""
        code = re.search(rb"<Code>([A-Za-z]{1,64})</Code>", body)
        where = f"bucket {self._asked.bucket}, key {self._key(name)}"
        return refusal(status, headers, where, code[1].decode() if code else "")
