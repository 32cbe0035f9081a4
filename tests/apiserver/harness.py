"""A real etcd and kube-apiserver on loopback, for tests of what only they can answer.

Nothing else of a cluster runs: no kubelet, no scheduler, no controllers. So a namespace has no default
ServiceAccount, a deleted owner's dependants stay, and no pod ever runs. All state is in the folder that is given.
"""

import base64
import json
import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.binaries import PINNED, binaries_folder

BIN_VARIABLE = "MODELBACKEND_CLUSTER_BIN"
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
START_SECONDS = 120
ADMIN_TOKEN = "admin-of-the-tests"
MERGE_PATCH = "application/merge-patch+json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}

Json = dict[str, Any]


class BinariesMissingError(Exception):
    """Says which programs were looked for, where, and how to get them."""


def find_binaries() -> Path:
    """The folder of the test cluster's programs: $MODELBACKEND_CLUSTER_BIN, else where their build puts them."""
    folder = Path(os.environ.get(BIN_VARIABLE) or binaries_folder(PINNED))
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    if missing:
        raise BinariesMissingError(
            f"{', '.join(missing)} not found in {folder}. Build them from source (ten minutes, once) with "
            "`python3 -m e2e.cluster binaries`, "
            f"or name a folder that has them in {BIN_VARIABLE}; MODELBACKEND_SKIP_APISERVER=1 leaves these tests out."
        )
    return folder


@dataclass(frozen=True)
class Answer:
    """What the API server said: the HTTP status, and the body if it was JSON (else its text under "text")."""

    status: int
    body: Json

    @property
    def message(self) -> str:
        """Of a refusal."""
        return str(self.body.get("message", self.body.get("text", "")))


@dataclass(frozen=True)
class Call:
    """What an account asked of the API server, and whether it had the right to.

    Not every 403 is about rights: a namespace that is being deleted, a quota and a policy say it, too.
    """

    user: str
    verb: str
    group: str
    resource: str
    """With its subresource: `pods/status`."""
    namespace: str
    allowed: bool


@dataclass(frozen=True)
class ApiServer:
    """A running API server, and an administrator's way in."""

    url: str
    ca_file: Path
    token: str
    kubeconfig: Path
    bin_folder: Path
    audit_log: Path

    def calls(self) -> Iterator[Call]:
        """All that service accounts asked so far; discovery is left out."""
        for line in self.audit_log.read_text().splitlines():
            event = json.loads(line)
            if "objectRef" in event and "responseStatus" in event:
                of = event["objectRef"]
                resource = "/".join(filter(None, (of.get("resource"), of.get("subresource"))))
                group, namespace = of.get("apiGroup", ""), of.get("namespace", "")
                allowed = event["annotations"]["authorization.k8s.io/decision"] == "allow"
                yield Call(event["user"]["username"], event["verb"], group, resource, namespace, allowed)

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """One call as administrator. Every HTTP status is an answer; a server that does not answer raises."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": accept},
        )
        trust = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=30, context=trust) as response:
                return Answer(response.status, _parse(response.read()))
        except urllib.error.HTTPError as refusal:
            return Answer(refusal.code, _parse(refusal.read()))

    def get(self, path: str, *, accept: str = "application/json") -> Answer:
        return self.request("GET", path, accept=accept)

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        return self.request("POST", path, body)

    def merge(self, path: str, patch: Mapping[str, Any]) -> Answer:
        return self.request("PATCH", path, patch, content_type=MERGE_PATCH)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; the caller looks at its return code."""
        command = [str(self.bin_folder / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=stdin, text=True, capture_output=True, timeout=60, check=False)

    def install(self, crd: Json) -> None:
        """Create a CustomResourceDefinition and return once its kind is served."""
        name = crd["metadata"]["name"]
        answer = self.post(CRDS, crd)
        if answer.status != 201:
            raise RuntimeError(f"the definition of {name} was refused: {answer.message}")
        group, version = crd["spec"]["group"], crd["spec"]["versions"][0]["name"]
        served = f"/apis/{group}/{version}/{crd['spec']['names']['plural']}"
        await_condition(f"{name} to be served", lambda: self.get(served).status == 200, seconds=30)


def _parse(raw: bytes) -> Json:
    try:
        parsed = json.loads(raw)
    except ValueError:
        return {"text": raw.decode(errors="replace")}
    return parsed if isinstance(parsed, dict) else {"text": str(parsed)}


@contextmanager
def running_api_server(folder: Path, *flags: str) -> Iterator[ApiServer]:
    """Start both programs with their state and logs in `folder`, and end them on leaving.

    `flags` are the API server's, besides those that the tests need anyway.
    """
    bin_folder = find_binaries()
    with ExitStack() as programs:
        etcd_url = _start_etcd(bin_folder, folder, programs)
        server = _start_apiserver(bin_folder, folder, etcd_url, programs, flags)
        yield server


def _start_etcd(bin_folder: Path, folder: Path, programs: ExitStack) -> str:
    client, peer = (f"http://127.0.0.1:{port}" for port in _free_ports(2))
    process = programs.enter_context(
        _program(
            folder / "etcd.log",
            str(bin_folder / "etcd"),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
    )
    _await_program(process, folder / "etcd.log", lambda: _answers(f"{client}/health"))
    return client


def _start_apiserver(
    bin_folder: Path, folder: Path, etcd_url: str, programs: ExitStack, flags: Sequence[str]
) -> ApiServer:
    (port,) = _free_ports(1)
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    audit_policy = folder / "audit-policy.yaml"
    audit_policy.write_text(yaml.safe_dump(AUDIT_POLICY))
    tokens = folder / "tokens.csv"
    tokens.write_text(f"{ADMIN_TOKEN},admin,admin,system:masters\n")
    process = programs.enter_context(
        _program(
            folder / "kube-apiserver.log",
            str(bin_folder / "kube-apiserver"),
            f"--etcd-servers={etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            # Loopback may not be advertised, and there is nobody to tell.
            "--endpoint-reconciler-type=none",
            # No controller makes the ServiceAccount that this would ask for.
            "--disable-admission-plugins=ServiceAccount",
            f"--audit-policy-file={audit_policy}",
            f"--audit-log-path={folder / 'audit.log'}",
            *flags,
        )
    )
    server = ApiServer(
        url=f"https://127.0.0.1:{port}",
        # The server makes a CA and a certificate for itself; the file holds both.
        ca_file=folder / "certificates" / "apiserver.crt",
        token=ADMIN_TOKEN,
        kubeconfig=folder / "kubeconfig",
        bin_folder=bin_folder,
        audit_log=folder / "audit.log",
    )
    _await_program(process, folder / "kube-apiserver.log", lambda: _is_ready(server))
    _write_kubeconfig(server)
    return server


def _is_ready(server: ApiServer) -> bool:
    if not server.ca_file.exists():
        return False
    try:
        return server.get("/readyz").status == 200
    except OSError:
        return False


def _write_kubeconfig(server: ApiServer) -> None:
    authority = base64.b64encode(server.ca_file.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": {"server": server.url, "certificate-authority-data": authority}}],
        "users": [{"name": "admin", "user": {"token": server.token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
    }
    server.kubeconfig.write_text(yaml.safe_dump(config))


@contextmanager
def _program(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends. It also ends with us, however we end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    """Ports that were free just now, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _await_program(process: subprocess.Popen[bytes], log: Path, ready: Callable[[], bool]) -> None:
    """Until it is ready. Its end, or the deadline, is an error that shows the last lines of its log."""

    def ready_or_ended() -> bool:
        return process.poll() is not None or ready()

    try:
        await_condition(f"{log.stem} to be ready", ready_or_ended, START_SECONDS)
    except TimeoutError as late:
        raise RuntimeError(f"{late}; {_last_words(log)}") from late
    if process.poll() is not None:
        raise RuntimeError(f"{log.stem} ended with code {process.returncode}; {_last_words(log)}")


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-15:]
    return "\n".join([f"the end of {log}:", *lines])


def await_condition(what: str, holds: Callable[[], bool], seconds: float) -> None:
    """Look ten times a second until it holds; TimeoutError says what was awaited."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)
