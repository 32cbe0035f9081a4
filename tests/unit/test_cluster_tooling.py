"""The test cluster's pure parts: what it asks of kind, where it puts its network, what it reads and restores."""

import gzip
import hashlib
import io
import ipaddress
import json
import tarfile
from pathlib import Path

import pytest

from e2e.cluster.engine_link import CANDIDATES, free_block
from e2e.cluster.host_traces import KUBELET_SETTINGS, KernelSettings, remove_cgroups
from e2e.cluster.image_archive import Image, layer_of_files, write_archive
from e2e.cluster.kind_cluster import kind_config
from e2e.cluster.load import ArchivedImage, archived_images, canonical
from e2e.cluster.preflight import Check, table
from images.cache import publish, remove_abandoned_scratch
from images.debian_base import host_mirror
from images.steps import StepError


def cluster_patch(version: str) -> dict[str, object]:
    patch: dict[str, object] = json.loads(kind_config(version, 2)["kubeadmConfigPatches"][0])
    return patch


def test_kubeadm_arguments_have_the_form_that_kind_writes_for_the_version() -> None:
    period = "node-monitor-grace-period"
    assert cluster_patch("v1.35.4")["controllerManager"] == {"extraArgs": {period: "12s"}}
    assert cluster_patch("v1.36.0")["controllerManager"] == {"extraArgs": [{"name": period, "value": "12s"}]}


def test_a_cluster_has_one_control_plane_and_the_workers_asked_for() -> None:
    roles = [node["role"] for node in kind_config("v1.35.4", 3)["nodes"]]
    assert roles == ["control-plane", "worker", "worker", "worker"]


def test_an_engine_takes_the_first_addresses_that_no_route_touches() -> None:
    taken = [ipaddress.IPv4Network("172.28.0.0/24"), ipaddress.IPv4Network("172.28.3.4/32")]
    assert free_block(taken) == ipaddress.IPv4Network("172.28.4.0/23")


def test_an_engine_says_so_when_every_address_is_routed() -> None:
    with pytest.raises(StepError, match="is routed on this host already"):
        free_block([CANDIDATES.supernet()])


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("team/app", "docker.io/team/app:latest"),
        ("localhost/app:dev", "localhost/app:dev"),
        ("registry.test:5000/app", "registry.test:5000/app:latest"),
    ],
)
def test_a_reference_is_looked_up_under_the_name_containerd_keeps(short: str, full: str) -> None:
    assert canonical(short) == full


def test_a_written_archive_names_its_images_and_shares_layers(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"a program")
    layer = layer_of_files(tmp_path / "layer.tar.gz", {"/bin/program": program, "/bin/alias": "program"})
    archive = tmp_path / "images.tar"
    write_archive(archive, [Image("localhost/one:1", (layer,), ("/bin/program",)), Image("localhost/two:2", (layer,))])

    one, two = archived_images(archive)
    assert (one.reference, two.reference) == ("localhost/one:1", "localhost/two:2")
    assert one.config_digest != two.config_digest
    with tarfile.open(archive) as tar:
        assert tar.getnames().count("layer.tar.gz") == 1
    content = gzip.decompress(layer.path.read_bytes())
    assert layer.diff_id == f"sha256:{hashlib.sha256(content).hexdigest()}"
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert (tar.getmember("bin/program").mode, tar.getmember("bin/alias").linkname) == (0o755, "program")


def test_the_same_files_make_the_same_layer(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"a program")
    first = layer_of_files(tmp_path / "first", {"/program": program})
    assert layer_of_files(tmp_path / "second", {"/program": program}).diff_id == first.diff_id


def test_an_oci_layout_is_read_by_its_annotation_and_configuration(tmp_path: Path) -> None:
    manifest = json.dumps({"config": {"digest": "sha256:c0ffee"}}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    annotations = {"org.opencontainers.image.ref.name": "localhost/app:dev"}
    index = {"manifests": [{"digest": f"sha256:{digest}", "annotations": annotations}]}
    archive = tar_of(tmp_path, {"index.json": json.dumps(index).encode(), f"blobs/sha256/{digest}": manifest})
    assert archived_images(archive) == [ArchivedImage("localhost/app:dev", "c0ffee")]


def test_a_tar_that_is_no_image_is_refused_by_name(tmp_path: Path) -> None:
    archive = tar_of(tmp_path, {"readme": b""})
    with pytest.raises(StepError, match=r"some\.tar is no image archive"):
        archived_images(archive)


def tar_of(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "some.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return path


def test_kernel_settings_are_restored_as_they_were_before_the_first_run(tmp_path: Path) -> None:
    for name in KUBELET_SETTINGS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("0\n")
    KernelSettings(tmp_path / "state.json", tmp_path).record()
    (tmp_path / "kernel/panic").write_text("10\n")
    after_a_crash = KernelSettings(tmp_path / "state.json", tmp_path)
    after_a_crash.record()
    after_a_crash.restore()
    assert (tmp_path / "kernel/panic").read_text() == "0\n"
    assert not (tmp_path / "state.json").exists()


def test_control_groups_go_with_all_below_them_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "memory/ours/kubelet/pod").mkdir(parents=True)
    (tmp_path / "memory/theirs").mkdir()
    (tmp_path / "ours").mkdir()
    remove_cgroups("ours", tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["memory", "memory/theirs"]


def test_a_cache_entry_whose_making_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELBACKEND_CACHE", str(tmp_path))

    def fail_half_way() -> None:
        with publish(tmp_path / "entry") as draft:
            draft.write_text("half")
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        fail_half_way()
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]
    assert not list((tmp_path / "scratch").iterdir())


def test_scratch_of_a_killed_process_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELBACKEND_CACHE", str(tmp_path))
    beyond_every_process_id = 2**22 + 1
    (tmp_path / "scratch" / f"{beyond_every_process_id}.abandoned").mkdir(parents=True)
    (tmp_path / "scratch" / "1.in-use").mkdir()
    remove_abandoned_scratch()
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["1.in-use"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("sources.list", "deb [arch=amd64] http://mirror.test/debian bookworm main\n"),
        (
            "sources.list.d/debian.sources",
            "Types: deb\nURIs: http://other.test\nSuites: trixie\n\n"
            "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm bookworm-updates\n",
        ),
    ],
)
def test_debian_comes_from_the_mirror_of_this_host(file: str, content: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(content)
    assert host_mirror(tmp_path) == "http://mirror.test/debian"


def test_a_host_without_such_a_source_uses_the_default_mirror(tmp_path: Path) -> None:
    assert host_mirror(tmp_path) is None


def test_preflight_shows_what_to_do_about_what_is_missing() -> None:
    text = table([Check("Go", "go1.26.8"), Check("Disk", "2 GiB free", "15 GiB are needed")])
    ok, missing = text.splitlines()
    assert ok.split() == ["ok", "Go", "go1.26.8"]
    assert missing.split(maxsplit=2) == ["MISSING", "Disk", "2 GiB free  15 GiB are needed"]
