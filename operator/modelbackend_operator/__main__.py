"""The command `modelbackend-operator`."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

import uvloop
from pydantic import ValidationError

from modelbackend_operator.control_key import NoControlKeyError
from modelbackend_operator.kubernetes_api import NoCredentialsError
from modelbackend_operator.log_format import configure_logging
from modelbackend_operator.process import run
from modelbackend_operator.settings import Settings

EXIT_CONFIGURATION = 64
log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: told to stop, and did. 1: a part ended by itself. 64: cannot run as configured."""
    parser = argparse.ArgumentParser(prog="modelbackend-operator", description="Runs ModelBackends on Kubernetes.")
    commands = parser.add_subparsers(dest="command", required=True)
    run_command = commands.add_parser(
        "run", help="reconcile until told to stop; settings are the environment variables MODELBACKEND_OPERATOR_*"
    )
    run_command.add_argument("--kubeconfig", help="act by this file, outside the cluster; else by service account")
    options = parser.parse_args(arguments)
    try:
        settings = Settings()
    except ValidationError as error:
        print(f"modelbackend-operator: a MODELBACKEND_OPERATOR_* variable is wrong\n{error}", file=sys.stderr)
        return EXIT_CONFIGURATION
    configure_logging(settings.log_format, settings.log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(settings, options.kubeconfig))
    except (NoControlKeyError, NoCredentialsError) as error:
        log.error("cannot start: %s", error)  # noqa: TRY400 - a sentence for the administrator, not a bug's traceback
        return EXIT_CONFIGURATION


if __name__ == "__main__":
    sys.exit(main())
