"""The one way between the host and the engine's network namespace: a pair of linked interfaces and a route.

Nodes are reached at their own addresses, so node ports and host ports work from the host as on a real network.
The host's firewall and its forwarding stay as they are; the namespace has no way out to other networks.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from images.steps import StepError

# A private range that few networks use; an engine takes the first /23 of it that no route of the host touches:
# the lower half for nodes, two addresses of the upper half for the ends of the link.
CANDIDATES = ipaddress.IPv4Network("172.28.0.0/16")


@dataclass(frozen=True)
class EngineLink:
    """`name` is the host's interface; the addresses are kept in `state`, since nodes remember theirs."""

    name: str
    state: Path

    def choose_block(self) -> ipaddress.IPv4Network:
        """The /23 of this engine: the one it had, unless the host has got a route into it since."""
        taken = routed_networks()
        block = self._remembered()
        if block is None or any(block.overlaps(network) for network in taken):
            block = free_block(taken)
            self.state.write_text(json.dumps({"block": str(block)}))
        return block

    def _remembered(self) -> ipaddress.IPv4Network | None:
        with suppress(FileNotFoundError, ValueError):
            return ipaddress.IPv4Network(json.loads(self.state.read_text())["block"])
        return None

    def connect(self, engine_pid: int) -> ipaddress.IPv4Network:
        """Link the host with the network namespace of a process; returns the network for its nodes."""
        self.remove()
        nodes, ends = self.choose_block().subnets(prefixlen_diff=1)
        host_end, engine_end = ends[1], ends[2]
        _ip("link", "add", self.name, "type", "veth", "peer", "name", "host", "netns", str(engine_pid))
        _ip("address", "add", f"{host_end}/30", "dev", self.name)
        _ip("link", "set", self.name, "up")
        inside = ("nsenter", f"--net=/proc/{engine_pid}/ns/net")
        _run(*inside, "ip", "address", "add", f"{engine_end}/30", "dev", "host")
        _run(*inside, "ip", "link", "set", "host", "up")
        _run(*inside, "ip", "link", "set", "lo", "up")
        _run(*inside, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        _ip("route", "add", str(nodes), "via", str(engine_end), "dev", self.name)
        return nodes

    def remove(self) -> None:
        """Take the link away; its routes go with it."""
        if Path("/sys/class/net", self.name).exists():
            subprocess.run(["ip", "link", "delete", self.name], capture_output=True, check=False)


def free_block(taken: list[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """The first block of CANDIDATES that overlaps none of the networks."""
    for block in CANDIDATES.subnets(new_prefix=23):
        if not any(block.overlaps(network) for network in taken):
            return block
    raise StepError(f"every /23 of {CANDIDATES} is routed on this host already: see ip route")


def routed_networks() -> list[ipaddress.IPv4Network]:
    """The networks that the host's routes name, the default route left out."""
    routes = json.loads(_ip("-json", "-4", "route", "show"))
    return [ipaddress.IPv4Network(route["dst"]) for route in routes if route["dst"] != "default"]


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StepError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
