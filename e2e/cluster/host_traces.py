"""What an engine's end leaves on the host, and how to take it away."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
REMOVE_SECONDS = 10.0

# A kubelet sets these for the whole machine, although it runs in a container
# (https://github.com/kubernetes/kubernetes/blob/v1.35.4/pkg/kubelet/cm/container_manager_linux.go).
KUBELET_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


class KernelSettings:
    """The kernel's settings from before the nodes ran, kept in a file until they are restored."""

    def __init__(self, state: Path, proc_sys: Path = Path("/proc/sys")) -> None:
        self._state = state
        self._proc_sys = proc_sys

    def record(self) -> None:
        """Remember the values, unless a run that did not end well remembers older ones."""
        if self._state.exists():
            return
        values = {name: (self._proc_sys / name).read_text() for name in KUBELET_SETTINGS}
        draft = self._state.with_suffix(".draft")
        draft.write_text(json.dumps(values))
        draft.rename(self._state)

    def restore(self) -> None:
        """Write the remembered values back and forget them."""
        with suppress(FileNotFoundError):
            for name, value in json.loads(self._state.read_text()).items():
                if (self._proc_sys / name).read_text() != value:
                    (self._proc_sys / name).write_text(value)
            self._state.unlink()


def remove_cgroups(name: str, root: Path = CGROUPS) -> None:
    """Remove the control group `name` with everything below it, in every hierarchy.

    A group can be removed once its last process is gone, which the kernel may report a little late.
    """
    deadline = time.monotonic() + REMOVE_SECONDS
    for hierarchy in [root, *(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())]:
        group = hierarchy / name
        while group.is_dir() and time.monotonic() < deadline:
            for folder, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)
            if group.is_dir():
                time.sleep(0.1)
