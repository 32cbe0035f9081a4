"""The command modelbackend-server."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    # As process 1 of a container there is no default action: a SIGTERM during the imports would be lost.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    # gRPC's own lines are no JSON, and say less than ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

    from . import log, variants
    from .exits import Exit, ExitCode, UnservableError, write_termination_log

    log.configure("info")
    termination_log = Path(os.environ.get("MODELBACKEND_TERMINATION_LOG", "/dev/termination-log"))
    try:
        # Trying the CPU code out takes about as long as all that is imported from here on.
        variants.first_trial()

        import asyncio
        import gc

        import uvloop

        from .settings import parse

        settings = parse(sys.argv[1:])
        log.configure(settings.log_level)
        termination_log = settings.termination_log
        log.logger().info("starting", **settings.model_dump(mode="json"))
        from .server import Server

        async def serve() -> Exit:
            server = Server(settings)
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, server.on_signal)
            # What was imported stays: the collector of cycles need not walk over it again and again.
            return await server.serve(on_imported=gc.freeze)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            ended = runner.run(serve())
    except UnservableError as refusal:
        ended = refusal.exit
    report = log.logger().info if ended.code is ExitCode.DRAINED else log.logger().error
    report("ended", code=int(ended.code), reason=ended.code.name, words=ended.words)
    write_termination_log(termination_log, ended.words)
    sys.exit(int(ended.code))


if __name__ == "__main__":
    main()
