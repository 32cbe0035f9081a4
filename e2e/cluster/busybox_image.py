"""A small image for pods that only test the cluster: Debian's static busybox and nothing else."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from e2e.cluster.image_archive import Image, layer_of_files, write_archive
from images.cache import cache_root, digest_of, publish
from images.debian_packages import ensure_command

BUSYBOX = "localhost/busybox:e2e"
COMMANDS = ("cat", "echo", "httpd", "id", "mkdir", "nc", "nslookup", "sh", "sleep", "touch")


def busybox_archive() -> Path:
    """The cached archive of BUSYBOX."""
    ensure_command("busybox", "busybox-static")
    program = Path(str(shutil.which("busybox")))
    archive = cache_root() / "cluster" / f"busybox-{digest_of(program, *COMMANDS)}.tar"
    if not archive.exists():
        with publish(archive) as draft, tempfile.TemporaryDirectory() as folder:
            files: dict[str, Path | str] = {"/bin/busybox": program}
            files |= {f"/bin/{command}": "busybox" for command in COMMANDS}
            layer = layer_of_files(Path(folder) / "busybox.tar.gz", files)
            write_archive(draft, [Image(BUSYBOX, (layer,))])
    return archive
