"""The command modelbackend-fetch."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from . import log
from .failures import Failure, FetchError
from .fetching import fetch
from .memory_limit import memory_limit_bytes
from .progress import Meter
from .settings import ENVIRONMENT_PREFIX, Settings, read_settings
from .status_service import telling

TERMINATED = 128 + signal.SIGTERM


async def _run(settings: Settings) -> str:
    """SIGTERM ends it in the middle of whatever it does; what has come is kept."""
    limit = memory_limit_bytes()
    meter = Meter(limit)
    async with telling(settings, meter):
        task = asyncio.ensure_future(fetch(settings, meter, limit if settings.weights_in_memory else None))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task


def main() -> NoReturn:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its lines are no JSON
    log.configure()
    termination_log = Path(os.environ.get(f"{ENVIRONMENT_PREFIX}TERMINATION_LOG", "/dev/termination-log"))
    code, words = 0, ""
    try:
        settings = read_settings()
        termination_log = settings.termination_log
        words = asyncio.run(_run(settings))
    except FetchError as failure:
        code, words = int(failure.code), failure.words
    except asyncio.CancelledError:
        code, words = TERMINATED, "told to end before the model was here"
    except Exception as error:  # a fault of ours: its text may hold an address or a header
        log.logger().error("internal", error=type(error).__name__, where=_where(error))
        code, words = int(Failure.INTERNAL), f"internal error ({type(error).__name__}) at {_where(error)}"
    (log.logger().error if code else log.logger().info)("ended", code=code, words=words)
    if code and termination_log.exists():  # made by the kubelet
        termination_log.write_text(words + "\n")
    sys.exit(code)


def _where(error: BaseException) -> str:
    place, trace = "", error.__traceback__
    while trace is not None:
        place, trace = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}", trace.tb_next
    return place


if __name__ == "__main__":
    main()
