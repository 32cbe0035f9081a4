"""What the host must have, in one table, and the Debian packages that we install ourselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.docker import Docker
from e2e.cluster.engine import OwnEngine
from e2e.cluster.host_traces import CGROUPS
from images.cache import cache_root
from images.steps import StepError, run_logged, say

GO_VERSION = (1, 26)
DISK_GIB = 15
MEMORY_GIB = 6
NEEDED_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
POLICY_FILE = Path("/usr/sbin/policy-rc.d")

POLICY = "#!/bin/sh\n# Made by the test cluster's preflight while it installs packages, and removed by it.\nexit 101\n"

# What an engine of our own needs: program -> the Debian package that has it.
ENGINE_PROGRAMS = {
    "catatonit": "catatonit",
    "docker": "docker.io",
    "dockerd": "docker.io",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "runc": "runc",
    "sysctl": "procps",
    "unshare": "util-linux",
}


@dataclass(frozen=True)
class Check:
    """One thing that is needed, what was found, and what to do about it if that is not enough."""

    name: str
    found: str
    remedy: str = ""

    @property
    def passed(self) -> bool:
        return not self.remedy


def preflight() -> None:
    """Print the table, install missing packages if we may, and raise StepError if something stays missing."""
    has_engine = Docker().succeeds("info", timeout_seconds=10.0)
    missing = [] if has_engine else missing_packages()
    if missing and _may_install():
        install(missing)
    checks = [_go(), _disk(), _memory()]
    checks += [_engine()] if has_engine else [_root(), _packages(), _cgroups(), _network()]
    say(table(checks))
    failed = [check.name for check in checks if not check.passed]
    if failed:
        raise StepError(f"this host lacks: {', '.join(failed)} (see the table above)")


def table(checks: Sequence[Check]) -> str:
    """The checks, one a line."""
    name_width = max(len(check.name) for check in checks)
    found_width = max(len(check.found) for check in checks)
    lines = [
        f"    {'ok     ' if check.passed else 'MISSING'}  {check.name:<{name_width}}  "
        f"{check.found:<{found_width}}  {check.remedy}".rstrip()
        for check in checks
    ]
    return "\n".join(lines)


def missing_packages() -> list[str]:
    """The Debian packages whose programs are not on the PATH."""
    return sorted({package for program, package in ENGINE_PROGRAMS.items() if not _which(program)})


def install(packages: Sequence[str]) -> None:
    """Install Debian packages without starting the services that they bring."""
    with _no_service_starts():
        environment = {"DEBIAN_FRONTEND": "noninteractive"}
        run_logged("apt-get update", ["apt-get", "update"], log_name="apt-update", env=environment)
        run_logged(
            f"apt-get install {' '.join(packages)}",
            ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
            log_name="apt-install",
            env=environment,
        )
    if "docker.io" in packages and Path("/run/systemd/system").is_dir():
        # Installed for this purpose only: it shall not start at the next boot either.
        subprocess.run(["systemctl", "disable", "docker.service", "docker.socket"], check=False)


@contextmanager
def _no_service_starts() -> Iterator[None]:
    # https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt
    ours = not POLICY_FILE.exists() or POLICY_FILE.read_text() == POLICY  # left by a killed run
    if ours:
        POLICY_FILE.write_text(POLICY)
        POLICY_FILE.chmod(0o755)
    try:
        yield
    finally:
        remove_policy()


def remove_policy() -> None:
    """Let the services of other packages start again, should an installation have been killed."""
    if POLICY_FILE.exists() and POLICY_FILE.read_text() == POLICY:
        POLICY_FILE.unlink()


def _may_install() -> bool:
    return os.geteuid() == 0 and _which("apt-get") is not None


def _which(program: str) -> str | None:
    # Debian's users do not have the folders of administration on their PATH.
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _go() -> Check:
    wanted = ".".join(map(str, GO_VERSION))
    if not _which("go"):
        return Check("Go", "none", f"install Go {wanted} or later and put it on the PATH")
    text = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", text)
    recent = found is not None and (int(found[1]), int(found[2])) >= GO_VERSION
    return Check("Go", text.strip(), "" if recent else f"Go {wanted} or later is needed")


def _disk() -> Check:
    free_gib = shutil.disk_usage(cache_root()).free / 2**30
    remedy = f"{DISK_GIB} GiB are needed; MODELBACKEND_CACHE names another folder"
    return Check("Disk", f"{free_gib:.0f} GiB free in {cache_root()}", "" if free_gib >= DISK_GIB else remedy)


def _memory() -> Check:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available_gib = int(fields["MemAvailable"].split()[0]) / 2**20
    remedy = f"{MEMORY_GIB} GiB are needed: use fewer nodes or close programs"
    return Check("Memory", f"{available_gib:.0f} GiB available", "" if available_gib >= MEMORY_GIB else remedy)


def _packages() -> Check:
    missing = missing_packages()
    if not missing:
        return Check("Packages", "all there")
    return Check("Packages", f"without {', '.join(missing)}", f"as root: apt-get install {' '.join(missing)}")


def _engine() -> Check:
    return Check("Docker engine", Docker().output("version", "--format={{.Server.Version}}").strip())


def _root() -> Check:
    remedy = "no Docker engine answers; start one, or be root so that we can run one of our own"
    return Check("Root", f"user id {os.geteuid()}", "" if os.geteuid() == 0 else remedy)


def _cgroups() -> Check:
    unified = CGROUPS / "cgroup.controllers"
    if unified.exists():
        controllers, version = set(unified.read_text().split()), "v2"
    else:
        controllers, version = {path.name for path in CGROUPS.iterdir()}, "v1"
    missing = [name for name in NEEDED_CONTROLLERS if name not in controllers]
    remedy = f"without {', '.join(missing)}: mount or enable these controllers" if missing else ""
    return Check("Control groups", version, remedy)


def _network() -> Check:
    try:
        engine = OwnEngine()
        if engine.pid():
            return Check("Network", f"the engine's link {engine.name} is there")
        block = engine.link.choose_block()
    except (StepError, FileNotFoundError) as failure:
        return Check("Network", "no free addresses", str(failure))
    return Check("Network", f"nodes get addresses of {block}")
