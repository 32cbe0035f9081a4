"""The demo's script, top to bottom."""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

from demo.shell import DemoError, Shell

ROOT = Path(__file__).parent.parent
CLUSTER = os.environ.get("NAME", "mb")
NAMESPACE = "demo"
GREEDY = ("--temperature", "0")


def main() -> None:
    os.chdir(ROOT)
    started = time.monotonic()
    shell = Shell(os.environ)
    try:
        prepare(shell)
        install(shell)
        serve(shell)
        with tempfile.TemporaryDirectory() as folder:
            delete_in_mid_stream(shell, Path(folder) / "stream.txt")
        proof(shell)
    except DemoError as failure:
        sys.exit(f"\nThe demo stopped: {failure}")
    finish(shell, time.monotonic() - started)


def prepare(shell: Shell) -> None:
    shell.section("A cluster with two workers and fake GPUs, and the images")
    shell.run("make", "--no-print-directory", "venv", "cluster-up", "cluster-load", f"NAME={CLUSTER}")
    exports = shell.read(sys.executable, "-m", "e2e.cluster", "env", "--name", CLUSTER)
    for name, value in re.findall(r'^export (\w+)="?([^"\n]*)"?$', exports, re.MULTILINE):
        shell.environment[name] = os.path.expandvars(value)
    shell.environment["PATH"] = f"{ROOT / '.venv/bin'}:{shell.environment['PATH']}"
    os.environ["PATH"] = shell.environment["PATH"]


def install(shell: Shell) -> None:
    shell.section("The operator, from plain manifests")
    shell.run("kubectl", "apply", "--server-side", "-f", "crds/")
    existed = shell.read("kubectl", "get", "deployments", "-n", "modelbackend-system", "-o", "name")
    shell.run("kubectl", "apply", "-f", "deploy/")
    deployment = ("deployment/modelbackend-operator", "-n", "modelbackend-system")
    if existed:
        shell.run("kubectl", "rollout", "restart", *deployment)  # the image under its tag may be a newer one
    shell.run("kubectl", "rollout", "status", *deployment, "--timeout=120s")
    shell.section("SmolLM2-135M-Instruct onto a volume")
    model = Path(shell.read(sys.executable, "-m", "images.model"))
    shell.run("kubectl", "apply", "-f", "demo/volume.yaml")
    shell.run("kubectl", "wait", "--for=condition=Ready", "pod/weights-loader", "-n", NAMESPACE, "--timeout=120s")
    copy = ("kubectl", "exec", "-i", "weights-loader", "-n", NAMESPACE, "--", "sh", "-c")
    shell.run(*copy, "cat > /models/smollm2.gguf", stdin=model)
    shell.run("kubectl", "delete", "pod", "weights-loader", "-n", NAMESPACE)


def serve(shell: Shell) -> None:
    shell.section("A ModelBackend that asks for a GPU")
    shell.run("kubectl", "delete", "modelbackends", "--all", "-n", NAMESPACE)  # of an earlier demo
    shell.run("kubectl", "apply", "-f", "demo/smollm2.yaml")
    shell.run("kubectl", "wait", "--for=condition=Ready", "modelbackend/smollm2", "-n", NAMESPACE, "--timeout=180s")
    show_all(shell)
    shell.section("Text through its node port")
    address = address_of(shell, "smollm2")
    prompt = "The capital of France is"
    shell.run(
        "modelbackend-client", "generate", "--address", address, "--prompt", prompt, "--max-tokens", "24", *GREEDY
    )
    question = "Give me one sentence about the sea."
    chat = ("modelbackend-client", "generate", "--chat", "--address", address)
    shell.run(*chat, "--prompt", question, "--max-tokens", "48", *GREEDY)


def delete_in_mid_stream(shell: Shell, text: Path) -> None:
    shell.section("Deleted in the middle of a stream")
    address = address_of(shell, "smollm2")
    prompt = ("--prompt", "Once upon a time", "--max-tokens", "400", *GREEDY)
    stream = shell.start("modelbackend-client", "generate", "--address", address, *prompt, output=text)
    shell.until("the stream runs", ("sh", "-c", 'test ! -s "$0" || echo begun', str(text)), "begun")
    shell.run("wc", "-w", str(text))
    shell.run("kubectl", "delete", "modelbackend", "smollm2", "-n", NAMESPACE, "--wait=false")
    phase = (
        "kubectl",
        "get",
        "modelbackend",
        "smollm2",
        "-n",
        NAMESPACE,
        "-o",
        "jsonpath={.status.instances[0].phase}",
    )
    shell.until("the instance drains", phase, "Draining")
    show_all(shell)
    shell.section("Meanwhile a second backend gets another port")
    shell.run("kubectl", "apply", "-f", "demo/second.yaml")
    shell.run("kubectl", "wait", "--for=condition=Ready", "modelbackend/second", "-n", NAMESPACE, "--timeout=180s")
    show_all(shell)
    if stream.wait(timeout=300) != 0:
        raise DemoError("the stream was cut")
    shell.section("The stream came whole")
    shell.run("wc", "-w", str(text))
    shell.run("tail", "-c", "200", str(text))


def proof(shell: Shell) -> None:
    shell.section("The pod ends, and its port is freed with evidence")
    shell.run("kubectl", "wait", "--for=delete", "modelbackend/smollm2", "-n", NAMESPACE, "--timeout=180s")
    columns = "custom-columns=PORT:.spec.port,PHASE:.status.phase,EVIDENCE:.status.evidence,BACKEND:.spec.backend.name"
    shell.run("kubectl", "get", "portclaims", "-o", columns)
    shell.section("After the reuse delay the claim is gone")
    while "Cooling" in shell.read("kubectl", "get", "portclaims", "-o", columns):
        time.sleep(0.5)
    show_all(shell)


def finish(shell: Shell, seconds: float) -> None:
    shell.section(f"Done in {seconds:.0f} s")
    if os.environ.get("DEMO_DOWN"):
        shell.run("make", "--no-print-directory", "cluster-down", f"NAME={CLUSTER}")
        return
    print(
        f"""The cluster is still up, and `second` serves. Try next:

  eval "$(python3 -m e2e.cluster env --name {CLUSTER})"; export PATH="$PWD/.venv/bin:$PATH"
  kubectl describe mb second -n {NAMESPACE}                 # conditions and Events, in words
  kubectl explain modelbackend.spec.shutdown         # the fields
  kubectl delete pod -n {NAMESPACE} --all --force           # the port stays claimed until the kubelet's word
  kubectl get portclaims -w                          # the ledger, live
  make cluster-down                                  # leaves the machine as it was found"""
    )


def show_all(shell: Shell) -> None:
    shell.run("kubectl", "get", "modelbackends,portclaims", "-A")


def address_of(shell: Shell, name: str) -> str:
    path = "jsonpath={.status.endpoints[0].address}"
    return shell.read("kubectl", "get", "modelbackend", name, "-n", NAMESPACE, "-o", path)


if __name__ == "__main__":
    main()
