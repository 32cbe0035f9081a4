"""The status page of the operator in its pod, as an administrator reaches it."""

import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from e2e.backends import Backend
from e2e.conftest import OPERATOR_NAMESPACE, STATUS_PAGE_PORT
from e2e.kubectl import Kubectl, until

Make = Callable[..., Backend]


@contextmanager
def forwarded(kubectl: Kubectl, what: str, port: int) -> Iterator[str]:
    """An address on loopback that leads to this port of a pod."""
    process = kubectl.start("port-forward", "-n", OPERATOR_NAMESPACE, what, f":{port}")
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, f"kubectl port-forward said {line!r}"
        yield f"http://127.0.0.1:{found[1]}/"
    finally:
        process.terminate()
        process.wait()


def test_the_page_is_reached_by_port_forward_and_follows_what_happens(kubectl: Kubectl, backend: Make) -> None:
    one = backend("on-the-page")
    address = one.until_ready()
    with forwarded(kubectl, "deployment/modelbackend-operator", STATUS_PAGE_PORT) as url:

        def page() -> str:
            with urllib.request.urlopen(url) as answer:
                return str(answer.read().decode())

        until("the address is on the page", lambda: address in page())
        row = f"<td>{one.namespace}/{one.name}</td>"
        assert row in page()
        one.delete()
        until("its row is gone", lambda: row not in page())
