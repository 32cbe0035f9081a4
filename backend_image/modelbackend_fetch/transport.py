"""One GET over HTTP, through redirects, with every way it can go wrong named.

Redirects are followed here rather than by the client library, because a store sends its callers to another host with an
address that is a key in itself: what is secret in our request must not go to another origin (RFC 9110, 15.4), and
what is secret in theirs must not come into a log.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from .failures import Failure, FetchError

MOST_REDIRECTS = 10
CONNECT_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 300.0
REFUSAL_BYTES = 4096
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRY_LATER = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Request:
    url: URL
    secret_headers: Mapping[str, str]
    """For this origin alone."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Of the last hop, and of those before it where that one does not have the header."""
    content: aiohttp.StreamReader


def place(url: URL) -> str:
    """An address for people and logs: who may read it must not be able to fetch with it."""
    return str(url.with_query(None).with_fragment(None).with_user(None))


@contextlib.asynccontextmanager
async def session(ca_file: Path | None, stall_seconds: float) -> AsyncIterator[aiohttp.ClientSession]:
    """Obeys HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Raises FetchError for a ca_file that holds no certificate."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise FetchError(
                Failure.BAD_CONFIGURATION, f"the CA bundle cannot be read: {error}. It is a file of PEM certificates."
            ) from None
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=stall_seconds)
    connector = aiohttp.TCPConnector(ssl=context, limit=4)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, trust_env=True, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
    ) as client:
        yield client


@contextlib.asynccontextmanager
async def get(client: aiohttp.ClientSession, request: Request, headers: Mapping[str, str]) -> AsyncIterator[Answer]:
    """The answer to a GET, whatever its status. Raises FetchError for one that does not come or leads nowhere.

    What goes wrong while the body is read inside the block is named, too.
    """
    url, told = request.url, CIMultiDict[str]()
    common = {"Accept-Encoding": "identity", **headers}
    with _named(request.url):
        for _ in range(MOST_REDIRECTS + 1):
            is_asked = url.origin() == request.url.origin()
            sent = {**common, **request.secret_headers} if is_asked else common
            async with client.get(url, headers=sent, allow_redirects=False) as response:
                told.update(response.headers)
                if response.status not in _REDIRECTS:
                    yield Answer(response.status, told, response.content)
                    return
                url = _next(url, response.headers.get("Location"))
    raise FetchError(
        Failure.UNEXPECTED_ANSWER,
        f"{place(request.url)} redirects more than {MOST_REDIRECTS} times, the last time to {place(url)}. "
        "Name the address of the file itself.",
    )


def _next(url: URL, location: str | None) -> URL:
    if not location:
        raise FetchError(Failure.UNEXPECTED_ANSWER, f"{place(url)} redirects to nowhere. Name the file's own address.")
    try:
        target = url.join(URL(location))
    except ValueError:
        raise FetchError(Failure.UNEXPECTED_ANSWER, f"{place(url)} redirects to an address that is none.") from None
    if target.scheme not in ("http", "https") or not target.host:
        raise FetchError(Failure.UNEXPECTED_ANSWER, f"{place(url)} redirects to something that is not HTTP.")
    if url.scheme == "https" and target.scheme == "http":
        raise FetchError(
            Failure.UNEXPECTED_ANSWER, f"{place(url)} redirects from https to http, where anybody may change the file."
        )
    return target


def refusal(answer_status: int, headers: Mapping[str, str], where: str, why: str = "") -> FetchError:
    """What a status other than success means, for a source that says no more than that."""
    told = f"{where} answers {answer_status}" + (f" ({why})" if why else "")
    if answer_status in (401, 403):
        words = f"{told}: access is denied. Check the credentials in the Secret, and what they may read."
        return FetchError(Failure.ACCESS_DENIED, words)
    if answer_status in (404, 410):
        return FetchError(Failure.MISSING, f"{told}: there is no such file. Correct its name in model.source.")
    if answer_status >= 500 or answer_status in _TRY_LATER:
        return FetchError(
            Failure.UNREACHABLE,
            f"{told}: the server cannot answer now. It is tried again.",
            retry_after_seconds=_retry_after_seconds(headers.get("Retry-After", "")),
        )
    return FetchError(Failure.UNEXPECTED_ANSWER, f"{told}, which is no file. Check the address in model.source.")


def _retry_after_seconds(value: str) -> float:
    """RFC 9110, 10.2.3: seconds, or a date."""
    if value.strip().isdecimal():
        return min(float(value), LONGEST_RETRY_AFTER_SECONDS)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    seconds = (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_SECONDS)


@contextlib.contextmanager
def _named(url: URL) -> Iterator[None]:
    """No message of the library's is passed on: some carry the whole address of the last hop."""
    where = place(url)
    try:
        yield
    except aiohttp.ClientConnectorDNSError as error:
        words = f"the host name {error.host} cannot be resolved. Check the address, and the cluster's DNS."
        raise FetchError(Failure.UNKNOWN_HOST, words) from None
    except aiohttp.ClientConnectorCertificateError as error:
        words = f"the certificate of {error.host} is not trusted: {_verdict(error)}. Name its CA in caBundleRef."
        raise FetchError(Failure.UNTRUSTED_CERTIFICATE, words) from None
    except aiohttp.ClientSSLError as error:
        words = f"{error.host} and this client find no common TLS ({type(error.os_error).__name__})."
        raise FetchError(Failure.UNTRUSTED_CERTIFICATE, words) from None
    except (aiohttp.ServerTimeoutError, TimeoutError):
        raise FetchError(Failure.STALLED, f"{where} sends nothing any more. It is tried again.") from None
    except aiohttp.ClientConnectorError as error:
        words = f"{error.host}:{error.port} cannot be reached: {error.os_error.strerror or 'no connection'}."
        raise FetchError(Failure.UNREACHABLE, words) from None
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError):
        raise FetchError(Failure.UNREACHABLE, f"the connection to {where} broke. It is tried again.") from None
    except aiohttp.InvalidURL:
        raise FetchError(Failure.UNEXPECTED_ANSWER, f"{where} leads to an address that is none.") from None
    except aiohttp.ClientError as error:
        words = f"{where} answers what is no HTTP ({type(error).__name__})."
        raise FetchError(Failure.UNEXPECTED_ANSWER, words) from None


def _verdict(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    return getattr(cause, "verify_message", "") or type(cause).__name__
