"""A Debian root file system as a tar archive, for machines that can reach Debian's packages but no registry.

    python3 -m images.debian_base [PACKAGE ...]      prints the path of the cached archive

The archive carries nothing of the machine it was made on: its package source is Debian's default mirror, and
there is no proxy, certificate, resolver, host name or machine id in it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from images.cache import cache_root, digest_of, publish, scratch_folder
from images.steps import StepError, run_logged

SUITE = "bookworm"
DEBOOTSTRAP = Path("/usr/sbin/debootstrap")
APT_FOLDER = Path("/etc/apt")

# What debian:*-slim images leave out as well; later `apt-get install`s in the image follow the same rule.
DPKG_EXCLUDES = """\
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/lintian/*
"""
APT_SETTINGS = 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n'
EMPTIED_FOLDERS = (
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
)


def rootfs_archive(packages: Sequence[str] = ()) -> Path:
    """The tar of a minimal Debian with `packages` added, made at the first call and cached afterwards."""
    archive = archive_path(packages)
    if archive.exists():
        return archive
    if not DEBOOTSTRAP.exists():
        raise StepError("debootstrap is not installed: apt-get install debootstrap")
    with scratch_folder() as folder:
        rootfs = folder / "rootfs"
        _debootstrap(rootfs, packages)
        _clean(rootfs)
        with publish(archive) as draft:
            subprocess.run(["tar", "--numeric-owner", "--xattrs", "-C", rootfs, "-cf", draft, "."], check=True)
    return archive


def archive_path(packages: Sequence[str] = ()) -> Path:
    """Where the archive is or will be; its name changes with the recipe."""
    recipe = digest_of(" ".join(sorted(packages)), DPKG_EXCLUDES, APT_SETTINGS, *EMPTIED_FOLDERS)
    return cache_root() / "rootfs" / f"debian-{SUITE}-{recipe}.tar"


def _debootstrap(rootfs: Path, packages: Sequence[str]) -> None:
    # It mounts /proc and /sys in there: in namespaces of its own, so that they go with it however it ends.
    isolated = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    command: list[str | Path] = [*isolated, DEBOOTSTRAP, "--variant=minbase"]
    if packages:
        command.append(f"--include={','.join(packages)}")
    command += [SUITE, rootfs]
    if mirror := host_mirror(APT_FOLDER):
        command.append(mirror)
    run_logged(f"Debian {SUITE} base with {len(packages)} extra packages", command, log_name="debootstrap")


def host_mirror(apt_folder: Path) -> str | None:
    """The mirror this host's apt fetches `SUITE` from, or None for debootstrap's default."""
    for path in sorted(apt_folder.glob("sources.list.d/*.sources")):
        for stanza in path.read_text().split("\n\n"):
            uris = re.search(r"^URIs:\s*(\S+)", stanza, re.MULTILINE)
            suites = re.search(r"^Suites:\s*(.+)$", stanza, re.MULTILINE)
            if uris and suites and SUITE in suites.group(1).split():
                return uris.group(1)
    for path in [apt_folder / "sources.list", *sorted(apt_folder.glob("sources.list.d/*.list"))]:
        if path.exists() and (
            found := re.search(rf"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+{SUITE}\s", path.read_text(), re.MULTILINE)
        ):
            return found.group(1)
    return None


def _clean(rootfs: Path) -> None:
    """Take out what belongs to the build or to this machine."""
    (rootfs / "etc/dpkg/dpkg.cfg.d/slim").write_text(DPKG_EXCLUDES)
    (rootfs / "etc/apt/sources.list").write_text(f"deb {_default_mirror()} {SUITE} main\n")
    for name in ("etc/hostname", "etc/resolv.conf", "etc/machine-id", "var/lib/dbus/machine-id"):
        (rootfs / name).unlink(missing_ok=True)
    (rootfs / "etc/machine-id").touch()  # empty: the first boot makes one
    (rootfs / "etc/apt/apt.conf.d/image").write_text(APT_SETTINGS)
    for name in EMPTIED_FOLDERS:
        _empty(rootfs / name)
    for path in (rootfs / "usr/share/doc").rglob("*"):
        if not path.is_dir() and path.name != "copyright":
            path.unlink()


def _default_mirror() -> str:
    found = re.search(r'^DEF_MIRROR="([^"]+)"', DEBOOTSTRAP.read_text(), re.MULTILINE)
    if not found:
        raise StepError(f"{DEBOOTSTRAP} names no DEF_MIRROR")
    return found.group(1)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def main() -> None:
    try:
        print(rootfs_archive(sys.argv[1:]))
    except StepError as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
