"""How much memory the container may take: as much as the server's, which will map the file.

https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
"""

from __future__ import annotations

from pathlib import Path

OWN_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""A container sees its own cgroup as the root."""


def memory_limit_bytes(file: Path = OWN_LIMIT) -> int | None:
    """None where there is no limit, or none that we are shown."""
    try:
        limit = file.read_text().strip()
    except OSError:
        return None
    return int(limit) if limit.isdecimal() else None
