"""The logs of the operators, which are the traces of what they did, kept while their pods come and go.

One file for each container that ever ran: a kubelet throws a log away with its pod, and tests kill many.
"""

import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e.api import Api

SELECTOR = "app.kubernetes.io%2Fname%3Dmodelbackend-operator"
RETRY_SECONDS = 0.5


@contextmanager
def operator_logs_kept(api: Api, namespace: str, folder: Path) -> Iterator[Path]:
    """While the block runs. The folder is emptied first: what an earlier run left there is not this run's."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stopping = threading.Event()
    threading.Thread(target=_keep_all, args=(api, namespace, folder, stopping), daemon=True).start()
    yield folder
    stopping.set()


def _keep_all(api: Api, namespace: str, folder: Path, stopping: threading.Event) -> None:
    """Each container is followed from when it is told running; a watch that ends is begun anew."""
    pods, known = f"/api/v1/namespaces/{namespace}/pods", set[str]()
    while not stopping.is_set():
        with suppress(OSError, http.client.HTTPException, ValueError):
            for line in api.lines(f"{pods}?labelSelector={SELECTOR}&watch=1"):
                pod = json.loads(line)["object"]
                for container in pod.get("status", {}).get("containerStatuses", ()):
                    name = container.get("containerID", "").rpartition("/")[2]
                    if name not in known and "running" in container["state"]:
                        known.add(name)
                        path = f"{pods}/{pod['metadata']['name']}/log?follow=true&container={container['name']}"
                        file = folder / f"{pod['metadata']['name']}-{name[:12]}.log"
                        threading.Thread(target=_keep, args=(api, path, file), daemon=True).start()
        stopping.wait(RETRY_SECONDS)


def _keep(api: Api, path: str, file: Path) -> None:
    with suppress(OSError, http.client.HTTPException), file.open("wb", buffering=0) as kept:
        for line in api.lines(path):
            kept.write(line)
