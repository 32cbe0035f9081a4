"""The logs of the operators, which are the traces of what they did, kept while their pods come and go.

One file for each container that ever ran: a kubelet throws a log away with its pod, and tests kill many. A connection
that breaks is made anew, and what was kept already is not kept twice.
"""

import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e.api import Api
from e2e.kubectl import until

SELECTOR = "app.kubernetes.io%2Fname%3Dmodelbackend-operator"
RETRY_SECONDS = 0.5
REST_SECONDS = 30


@contextmanager
def operator_logs_kept(api: Api, namespace: str, folder: Path) -> Iterator[Path]:
    """While the block runs, and until its operators have come to rest.

    The folder is emptied first: what an earlier run left there is not this run's.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stopping = threading.Event()
    growing = set[Path]()
    threading.Thread(target=_keep_all, args=(api, namespace, folder, growing, stopping), daemon=True).start()
    yield folder
    with suppress(AssertionError):  # who follows the traces is told what is unfinished
        until("they rest", lambda: not any(map(_unsettled, growing.copy())), timeout_seconds=REST_SECONDS)
    stopping.set()


def _unsettled(log: Path) -> set[str]:
    """Backends of which the last line told is a step."""
    events: dict[str, str] = {}
    for text in log.read_text(errors="replace").splitlines():
        with suppress(ValueError):
            line = json.loads(text)
            if line.get("event") in ("step", "settled"):
                events[line["key"]] = line["event"]
    return {key for key, event in events.items() if event == "step"}


def _keep_all(api: Api, namespace: str, folder: Path, growing: set[Path], stopping: threading.Event) -> None:
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
                        threading.Thread(target=_keep, args=(api, path, file, growing, stopping), daemon=True).start()
        stopping.wait(RETRY_SECONDS)


def _keep(api: Api, path: str, file: Path, growing: set[Path], stopping: threading.Event) -> None:
    growing.add(file)
    while not stopping.is_set():
        known, told = file.stat().st_size if file.exists() else 0, 0
        with suppress(OSError, http.client.HTTPException), file.open("ab", buffering=0) as kept:
            for line in api.lines(path):
                told += len(line)
                if told > known:
                    kept.write(line[-(told - known) :])
                    known = told
            growing.discard(file)
            return  # the container has ended
        stopping.wait(RETRY_SECONDS)
