"""The library itself: loaded once, its log in ours, its version."""

from __future__ import annotations

import ctypes
import logging

from ..log import logger
from .bindings import llama_cpp, version

ERROR_LINES_KEPT = 3
# ggml's levels and ours; its debugging, and continued lines, are dropped.
LOG_LEVELS = {2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}

errors: list[str] = []
"""llama.cpp's last lines of that level: its calls return a null pointer, and the reason is in the log."""


def _log(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    line = text.decode(errors="replace").strip()
    if not line or level not in LOG_LEVELS:
        return
    if LOG_LEVELS[level] == logging.ERROR:
        errors.append(line)
        del errors[:-ERROR_LINES_KEPT]
    logger(source="llama.cpp").log(LOG_LEVELS[level], line)


# Kept for as long as the library may call it.
_log_callback = llama_cpp.llama_log_callback(_log)
llama_cpp.llama_log_set(_log_callback, ctypes.c_void_p(0))


def build() -> str:
    """The versions behind this process, for Status and logs."""
    base = ctypes.CDLL("libggml-base.so.0")
    for function in (base.ggml_version, base.ggml_commit):
        function.restype = ctypes.c_char_p
    return f"llama-cpp-python {version()}, ggml {base.ggml_version().decode()} ({base.ggml_commit().decode()})"
