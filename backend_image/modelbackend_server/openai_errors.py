"""Refusals as OpenAI's API tells errors, so that the official clients raise their own exceptions.

Those clients repeat what fails. `x-should-retry`, which they obey, tells them only to where the model has not seen the
request and waiting helps.
"""

from __future__ import annotations

import math

from aiohttp import hdrs, web

from .checks import REQUEST_ID_KEY
from .openai_messages import Json
from .openai_wire import parameter_name
from .refusals import Reason, Refusal, retry_seconds, was_not_started

STATUSES = {
    Reason.QUEUE_FULL: 429,
    Reason.LOADING: 503,
    Reason.DRAINING: 503,
    Reason.STOPPED: 503,
    Reason.CUT: 503,
    Reason.BAD_REQUEST: 400,
    Reason.PROMPT_TOO_LONG: 400,
    Reason.UNSUPPORTED: 400,
    Reason.MODEL_CANNOT: 400,
    Reason.DEADLINE_IN_QUEUE: 504,
    Reason.DEADLINE_RUNNING: 504,
    Reason.STALLED: 408,
    Reason.CANCELLED: 409,
    Reason.MODEL_MISMATCH: 404,
    Reason.BACKEND_MISMATCH: 421,
    Reason.INSTANCE_MISMATCH: 421,
    Reason.NO_TOKEN: 401,
    Reason.WRONG_TOKEN: 401,
    Reason.DECODE_FAILED: 500,
}
# Where OpenAI has a word for it, clients compare with that one.
CODES = {
    Reason.PROMPT_TOO_LONG: "context_length_exceeded",
    Reason.MODEL_MISMATCH: "model_not_found",
    Reason.WRONG_TOKEN: "invalid_api_key",
    Reason.NO_TOKEN: "invalid_api_key",
}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def error_body(refusal: Refusal) -> Json:
    status = STATUSES[refusal.reason]
    parameter = parameter_name(refusal.field)
    error = {
        "message": refusal.message,
        "type": ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
        "param": parameter or None,
        "code": CODES.get(refusal.reason, refusal.reason.name.lower()),
        "not_started": was_not_started(refusal.reason),
    }
    return {"error": error}


def error_response(refusal: Refusal, request_name: str = "") -> web.Response:
    reason = refusal.reason
    after_seconds = retry_seconds(reason)
    headers = {"x-should-retry": "true" if after_seconds is not None else "false"}
    if after_seconds is not None:
        headers |= {hdrs.RETRY_AFTER: f"{math.ceil(after_seconds)}", "retry-after-ms": f"{after_seconds * 1000:.0f}"}
    if reason in {Reason.DRAINING, Reason.STOPPED, Reason.BACKEND_MISMATCH, Reason.INSTANCE_MISMATCH}:
        # On this connection the next try would come to us again.
        headers[hdrs.CONNECTION] = "close"
    if reason is Reason.NO_TOKEN:
        headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if request_name:
        headers[REQUEST_ID_KEY] = request_name
    return web.json_response(error_body(refusal), status=STATUSES[reason], headers=headers)


def http_error(request: web.Request, error: web.HTTPException) -> web.Response:
    """An error of HTTP itself: an unknown path, a method, a body too large."""
    words = {
        404: f"there is nothing at {request.path}; OpenAI's API begins at /v1",
        405: f"{request.path} does not take {request.method}",
    }.get(error.status, error.text or error.reason)
    kind = "invalid_request_error"
    body = {"error": {"message": words, "type": kind, "param": None, "code": error.reason.lower().replace(" ", "_")}}
    headers = {"x-should-retry": "false"}
    if hdrs.ALLOW in error.headers:
        headers[str(hdrs.ALLOW)] = error.headers[hdrs.ALLOW]
    return web.json_response(body, status=error.status, headers=headers)
