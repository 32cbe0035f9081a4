"""What can go wrong, in words for whoever typed the command, and the exit code that a script reads."""

from enum import IntEnum

import click

from kubectl_mb.printable import printable
from modelbackend_operator.kubernetes_api import Answer


class Exit(IntEnum):
    """Those of sysexits.h where it has a word; 2 is wrong usage, as everywhere."""

    DONE = 0
    NO = 1
    """The answer is no: an order was refused, a confirmation was not given, `plan --exit-code` found restarts."""
    NOT_FOUND = 66
    UNAVAILABLE = 69
    CONFLICT = 75
    NOT_ALLOWED = 77
    TOO_LATE = 124
    INTERRUPTED = 130


class Trouble(click.ClickException):
    """Says what happened, to which object, and what to do."""

    def __init__(self, exit_code: Exit, message: str) -> None:
        super().__init__(printable(message))
        self.exit_code = int(exit_code)  # type: ignore[misc]  # click declares it for the class


def trouble_of(answer: Answer, what: str) -> Trouble:
    """For an answer that is no success; `what` was tried, for example `read modelbackends in models`."""
    match answer.code:
        case 0:
            hint = "is the API server reachable? kubectl cluster-info asks the same one"
            return Trouble(Exit.UNAVAILABLE, f"cannot {what}: {answer.message}; {hint}")
        case 401:
            return Trouble(
                Exit.NOT_ALLOWED, f"cannot {what}: {answer.message}; log in again, or name another --context"
            )
        case 403:
            return Trouble(Exit.NOT_ALLOWED, f"not allowed to {what}: {answer.message}")
        case 404 if not answer.denies_existence():
            hint = "is the operator's API installed? kubectl get crd modelbackends.modelbackend.dev"
            return Trouble(Exit.UNAVAILABLE, f"cannot {what}: {answer.message}; {hint}")
        case 404:
            return Trouble(Exit.NOT_FOUND, f"cannot {what}: {answer.message}")
        case 409:
            return Trouble(Exit.CONFLICT, f"cannot {what}: it was changed at the same moment; look again, and repeat")
        case 429 | 500 | 502 | 503 | 504:
            return Trouble(Exit.UNAVAILABLE, f"cannot {what}: {answer.message}; try again")
        case _:
            return Trouble(Exit.NO, f"the API server refuses to {what}: {answer.message}")
