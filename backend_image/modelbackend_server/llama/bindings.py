"""llama-cpp-python's declarations of the C API, and no more of it.

Its package also imports a Python API of its own (sampling, chat formats, caches on disk), which nothing here uses and
which takes as long as all the rest of it. So the package is put in place without being run.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys

# Before the library is loaded: on an assertion ggml would start a debugger inside the pod.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

_package = importlib.util.find_spec("llama_cpp")
if _package is not None:
    sys.modules.setdefault("llama_cpp", importlib.util.module_from_spec(_package))

from llama_cpp import llama_cpp  # noqa: E402 - not before it is in place

__all__ = ["llama_cpp", "version"]


def version() -> str:
    """Of llama-cpp-python."""
    return importlib.metadata.version("llama_cpp_python")
