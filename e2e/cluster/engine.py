"""A Docker engine of our own, for hosts where none runs, that cannot leave a trace.

dockerd and everything it starts live in a PID, a mount and a network namespace made for them, below one `unshare`
process on the host. When that process ends, however it ends, the kernel ends the containers and takes away their
mounts, links, routes and firewall rules. What remains is ours to clear: control groups and a few kernel settings.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from e2e.cluster.docker import KIND_LABEL, Docker
from e2e.cluster.engine_link import EngineLink
from e2e.cluster.host_traces import KernelSettings, remove_cgroups
from images.cache import cache_root, digest_of
from images.steps import StepError, say, step

CAP_SYS_RESOURCE = 24
# dockerd would write a key there, and would read options that are meant for the host's own engine.
HIDE_ENGINE_SETTINGS = '[ ! -d /etc/docker ] || mount -t tmpfs tmpfs /etc/docker; exec "$@"'

PULL_SECONDS = 900.0
START_SECONDS = 30.0
STOP_SECONDS = 15.0

# Containers with every capability cannot start where the host itself lacks CAP_SYS_RESOURCE ("unable to apply
# caps"), so this stands before runc and takes that one out of what runc is asked to grant.
RUNC_WITHOUT_SYS_RESOURCE = """\
#!/bin/sh
previous=
for argument in "$@"; do
  case $previous in
    --bundle | -b) spec=$argument/config.json ;;
    --process | -p) spec=$argument ;;
    *) spec= ;;
  esac
  [ -z "$spec" ] || sed -i 's/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g' "$spec"
  previous=$argument
done
exec runc "$@"
"""


class OwnEngine:
    """The engine of one cache folder; its images stay in that folder while it is stopped."""

    def __init__(self) -> None:
        self.folder = cache_root() / "engine"
        self.folder.mkdir(exist_ok=True)
        self.name = f"mb{digest_of(str(self.folder))[:8]}"
        self.docker = Docker(f"unix://{self.folder / 'docker.sock'}")
        self.link = EngineLink(self.name, self.folder / "network.json")
        self._pid_file = self.folder / "pid"
        self._settings = KernelSettings(self.folder / "kernel-settings.json")

    def pid(self) -> int | None:
        """The host's id of the engine's `unshare` process; None when it does not run."""
        with suppress(FileNotFoundError, ValueError):
            pid = int(self._pid_file.read_text())
            # The id may have been given to another process since: only ours names our folder.
            if str(self.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def start(self) -> None:
        """Start it, reachable from the host; nothing happens if it runs and answers."""
        if self.pid() and self.docker.succeeds("info"):
            return
        self.stop()
        with step("Docker engine, in namespaces of its own"):
            self._settings.record()
            pid = self._spawn(["--net"])
            self._make_network(self.link.connect(pid))

    def _make_network(self, subnet: ipaddress.IPv4Network) -> None:
        """Docker's network that kind puts nodes in, with this subnet (an older one may have another)."""
        template = "{{range .IPAM.Config}}{{.Subnet}}{{end}}"
        if self.docker.succeeds("network", "inspect", "kind"):
            if self.docker.output("network", "inspect", "--format", template, "kind").strip() == str(subnet):
                return
            self.docker.output("network", "rm", "kind")
        bridge = f"com.docker.network.bridge.name={self.name}"
        self.docker.output("network", "create", "kind", "--subnet", str(subnet), "--opt", bridge)

    def pull(self, reference: str) -> bool:
        """Try to pull an image with the host's network, since the engine's own one has no way out.

        For this it is started again, without containers and without networks, which would be made on the host.
        """
        if self.holds_containers():
            say("    not pulling: other clusters run in this engine")
            return False
        self.docker.output("network", "rm", "kind")
        self.stop()
        self._spawn([])
        try:
            return self.docker.succeeds("pull", reference, timeout_seconds=PULL_SECONDS)
        finally:
            self.stop()
            self.start()

    def stop(self) -> None:
        """End it and remove what the kernel does not; harmless when it does not run, or was killed."""
        pid = self.pid()
        if pid:
            _end(pid)
        for name in ("pid", "dockerd.pid", "docker.sock"):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "exec", ignore_errors=True)
        self.link.remove()
        remove_cgroups(self.name)
        self._settings.restore()

    def remove_leftovers(self) -> None:
        """Remove containers that are no cluster's: what the building of an image left when it was killed."""
        kept = self.docker.output("ps", "--all", "--quiet", f"--filter=label={KIND_LABEL}").split()
        every = self.docker.output("ps", "--all", "--quiet").split()
        self.docker.remove_containers(sorted(set(every) - set(kept)))

    def holds_containers(self) -> bool:
        """Whether its folder has containers, running or left by a crash."""
        folder = self.folder / "data" / "containers"
        return folder.is_dir() and any(folder.iterdir())

    def _spawn(self, namespaces: list[str]) -> int:
        log_path = cache_root() / "logs" / "dockerd.log"
        log_path.parent.mkdir(exist_ok=True)
        # The shell writes its id, which stays unshare's, before anything exists that must be found again.
        script = f'echo $$ > {self._pid_file}.draft && mv {self._pid_file}.draft {self._pid_file} && exec "$@"'
        command = [
            *("sh", "-c", script, "engine"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *namespaces),
            *("sh", "-c", HIDE_ENGINE_SETTINGS, "engine"),
            *("catatonit", "--", "dockerd", *self._options()),
        ]
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.docker.succeeds("info"):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise StepError(f"dockerd does not answer: read {log_path}")
            time.sleep(0.2)
        return process.pid

    def _options(self) -> list[str]:
        options = [
            f"--data-root={self.folder / 'data'}",
            f"--exec-root={self.folder / 'exec'}",
            f"--pidfile={self.folder / 'dockerd.pid'}",
            f"--host={self.docker.host}",
            f"--cgroup-parent=/{self.name}",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            "--oom-score-adjust=0",
            # The namespace is its firewall: between containers and to the link everything may pass.
            "--iptables=false",
            "--bridge=none",
            "--ip-forward=false",
        ]
        if not _host_has_capability(CAP_SYS_RESOURCE):
            wrapper = self.folder / "runc-without-sys-resource"
            wrapper.write_text(RUNC_WITHOUT_SYS_RESOURCE)
            wrapper.chmod(0o755)
            options += [f"--add-runtime=limited={wrapper}", "--default-runtime=limited"]
        return options


def running_engine() -> Docker | None:
    """The engine that already answers for this user or, failing that, ours if it runs."""
    users = Docker()
    if users.succeeds("info", timeout_seconds=10.0):
        return users
    own = OwnEngine()
    return own.docker if own.pid() else None


def has_capability_sys_resource() -> bool:
    """Whether this host lets containers have CAP_SYS_RESOURCE."""
    return _host_has_capability(CAP_SYS_RESOURCE)


def _host_has_capability(bit: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return False


def _end(pid: int) -> None:
    """SIGTERM to the namespace's first process, so dockerd closes its databases; SIGKILL after a while."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)
    if not _gone_within(pid, STOP_SECONDS):
        say(f"    the engine (process {pid}) did not end in {STOP_SECONDS:.0f} s: killing it")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _gone_within(pid, STOP_SECONDS)


def _gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # it may be our own child
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.05)
    return False
