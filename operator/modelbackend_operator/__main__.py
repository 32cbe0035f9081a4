"""The command `modelbackend-operator`."""

import argparse
import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Sequence

import uvloop
from pydantic import ValidationError

from modelbackend_operator.control_key import NoControlKeyError
from modelbackend_operator.kubernetes_api import KubernetesApi, NoCredentialsError
from modelbackend_operator.log_format import configure_logging
from modelbackend_operator.process import run
from modelbackend_operator.self_test import complaints
from modelbackend_operator.settings import Settings
from modelbackend_operator.uninstall_guard import UninstallRefusedError, guard

EXIT_REFUSED = 1
EXIT_CONFIGURATION = 64
log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: told to stop, and did. 1: a part ended by itself, or the answer is no. 64: cannot run as configured."""
    parser = argparse.ArgumentParser(prog="modelbackend-operator", description="Runs ModelBackends on Kubernetes.")
    commands = parser.add_subparsers(dest="command", required=True)
    run_command = commands.add_parser(
        "run", help="reconcile until told to stop; settings are the environment variables MODELBACKEND_OPERATOR_*"
    )
    guard_command = commands.add_parser(
        "uninstall-guard",
        help="end well only if no ModelBackend needs the operator any more; see the chart's uninstall.guard",
    )
    guard_command.add_argument("--drain", action="store_true", help="delete all ModelBackends first")
    guard_command.add_argument(
        "--timeout-seconds", type=float, default=240, help="for their ends (default: %(default)s)"
    )
    test_command = commands.add_parser("self-test", help="is all there that the operator needs, and is it ready?")
    test_command.add_argument("--operator", required=True, metavar="URL", help="of its health port")
    for command in (run_command, guard_command, test_command):
        command.add_argument("--kubeconfig", help="act by this file, outside the cluster; else by service account")
    options = parser.parse_args(arguments)
    try:
        settings = Settings()
    except ValidationError as error:
        print(f"modelbackend-operator: a MODELBACKEND_OPERATOR_* variable is wrong\n{error}", file=sys.stderr)
        return EXIT_CONFIGURATION
    configure_logging(settings.log_format, settings.log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            match options.command:
                case "uninstall-guard":
                    return runner.run(_guard(settings, options))
                case "self-test":
                    return runner.run(_self_test(settings, options))
                case _:
                    return runner.run(run(settings, options.kubeconfig))
    except (NoControlKeyError, NoCredentialsError) as error:
        log.error("cannot start: %s", error)  # noqa: TRY400 - a sentence for the administrator, not a bug's traceback
        return EXIT_CONFIGURATION


async def _guard(settings: Settings, options: argparse.Namespace) -> int:
    async with _api(settings, options) as api:
        try:
            print(
                await guard(
                    api, sorted(settings.namespaces), drain=options.drain, timeout_seconds=options.timeout_seconds
                )
            )
        except UninstallRefusedError as refusal:
            print(refusal)
            return EXIT_REFUSED
    return 0


async def _self_test(settings: Settings, options: argparse.Namespace) -> int:
    async with _api(settings, options) as api:
        found = await complaints(api, settings, options.operator)
    print("\n".join(found) or "the operator is ready, and may read what it must")
    return EXIT_REFUSED if found else 0


@contextlib.asynccontextmanager
async def _api(settings: Settings, options: argparse.Namespace) -> AsyncIterator[KubernetesApi]:
    api = await KubernetesApi.connect(options.kubeconfig, timeout_seconds=settings.call_seconds)
    async with contextlib.aclosing(api):
        yield api


if __name__ == "__main__":
    sys.exit(main())
