"""Programs a build needs, installed as Debian packages where that is possible."""

from __future__ import annotations

import importlib.util
import os
import shutil

from images.steps import StepError, run_logged


def ensure_command(command: str, package: str) -> None:
    """Have `command` on the PATH: install Debian's `package`, or raise StepError that says what to do."""
    if shutil.which(command) is None:
        _install(f"the program {command}", package)


def ensure_pip() -> None:
    """Have `python3 -m pip` of the running interpreter, as `ensure_command`."""
    if importlib.util.find_spec("pip") is None:
        _install("pip for python3", "python3-pip")


def _install(wanted: str, package: str) -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise StepError(f"{wanted} is missing: install it (apt-get install {package}), or run this as root on Debian")
    apt = "apt-get -o DPkg::Lock::Timeout=300"  # another installation may be going on
    command = f"{apt} update && {apt} install --yes --no-install-recommends {package}"
    run_logged(
        f"Debian package {package}",
        ["sh", "-c", command],
        log_name=f"apt-{package}",
        env={"DEBIAN_FRONTEND": "noninteractive"},
    )
