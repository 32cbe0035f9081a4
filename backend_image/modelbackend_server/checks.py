"""What is asked of a call at any door before its content is read: does it mean us, may it, what is it called.

The doors differ in how they carry a header and an error; what they ask is the same, and is here.
"""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from modelbackend.v1 import model_info_pb2

from .exits import ExitCode, UnservableError
from .refusals import Reason, Refusal

UID_KEY = "x-modelbackend-uid"
POD_UID_KEY = "x-modelbackend-pod-uid"
MODEL_KEY = "x-modelbackend-model"
REQUEST_ID_KEY = "x-request-id"
TOKEN_KEY = "authorization"
TOKEN_SCHEME = "Bearer "
REQUEST_ID_LENGTH_MAX = 128

Headers = Callable[[str], str | None]
"""Looks a header (HTTP) or metadata key (gRPC) up by its lower-case name."""


class TokenFile:
    """A bearer token in a file, which is read on each call: the Secret behind it may be made anew."""

    def __init__(self, file: Path, *, name: str) -> None:
        """`name` is what people call the token. Raises UnservableError where there is none."""
        self._file = file
        if not self.read():
            words = f"{name} token file {file} cannot be read, or is empty: mount the backend's Secret there"
            raise UnservableError(ExitCode.BAD_CONFIGURATION, words)

    def read(self) -> bytes:
        """The token of this moment; b"" where there is none, and then nobody is let in."""
        try:
            return self._file.read_bytes().strip()
        except OSError:
            return b""

    def refusal(self, given: str | None) -> Refusal | None:
        if given is None or not given.startswith(TOKEN_SCHEME):
            return Refusal(Reason.NO_TOKEN, f"this call needs the header `{TOKEN_KEY}: {TOKEN_SCHEME}<token>`")
        wanted = self.read()
        # Bytes that are no UTF-8 come in a str as surrogates.
        shown = given.removeprefix(TOKEN_SCHEME).encode(errors="surrogateescape")
        if not wanted or not hmac.compare_digest(shown, wanted):
            words = "this is not the token of this backend; it may have been made anew: read its Secret again"
            return Refusal(Reason.WRONG_TOKEN, words)
        return None


@dataclass(frozen=True, slots=True)
class Checks:
    """Refuses calls that are meant for another backend: a node port may have changed hands since a caller learnt it.

    Callers that say nothing are served; kubelet's probes do not.
    """

    identity: model_info_pb2.Identity
    token: TokenFile | None = None
    # Told of each call whether it named whom it means.
    on_call: Callable[[bool], None] = lambda _: None

    def refusal(self, headers: Headers, *, with_token: bool = True) -> Refusal | None:
        if self.token is not None and with_token and (refusal := self.token.refusal(headers(TOKEN_KEY))):
            return refusal
        uid, model = headers(UID_KEY), headers(MODEL_KEY)
        self.on_call(uid is not None)
        if uid is not None and uid != self.identity.backend_uid:
            return Refusal(
                Reason.BACKEND_MISMATCH,
                f"this server belongs to ModelBackend {self.identity.backend_uid or 'of no uid'}, the call is meant "
                f"for {uid}: look the address up again",
            )
        pod_uid = headers(POD_UID_KEY)
        if pod_uid is not None and pod_uid != self.identity.pod_uid:
            words = f"this is the pod {self.identity.pod_uid or 'of no uid'}, the call is meant for {pod_uid}"
            return Refusal(Reason.INSTANCE_MISMATCH, f"{words}: look the instances up again")
        if model is not None:
            return self.model_refusal(model)
        return None

    def model_refusal(self, model: str) -> Refusal | None:
        if model == self.identity.model:
            return None
        words = f"this server has the model {self.identity.model!r}, not {model!r}"
        return Refusal(Reason.MODEL_MISMATCH, words, "model")


def request_id(given: str | None) -> str | Refusal:
    """The name of a request: its caller's, or one of ours."""
    if given is None:
        return uuid.uuid4().hex
    if 0 < len(given) <= REQUEST_ID_LENGTH_MAX and all("!" <= character <= "~" for character in given):
        return given
    words = f"{REQUEST_ID_KEY} must be 1 to {REQUEST_ID_LENGTH_MAX} visible ASCII characters"
    return Refusal(Reason.BAD_REQUEST, words, REQUEST_ID_KEY)
