"""What is known of the cluster: the newest version seen of each object, wherever it was seen.

Three sources feed it: watch events, LISTs, and the answers to our own writes. They arrive in any order, so order is
taken from the objects: resource versions of one kind compare as integers (KEP-5504). An older version never replaces
a newer one, a LIST removes nothing that was seen later than the LIST was taken, and what was seen to be gone does not
come back by a late event. No I/O, no clock.

Every change is told to `on_change`, with the keys (backend uids) that it concerns, whoever fed it: what one backend's
live read or refused write brings to light about another must wake that other, because its watch event will be no news.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from modelbackend_operator.kinds import SHARED, Kind, Raw, Term, terms_of

Keys = frozenset[str]
NOBODY: Keys = frozenset()
FOREVER = 2**64
"""Later than every version: a uid that a GET did not find any more never comes back."""


class Id(NamedTuple):
    kind: Kind
    namespace: str
    name: str


def id_of(kind: Kind, raw: Raw) -> Id:
    return Id(kind, raw["metadata"].get("namespace", ""), raw["metadata"]["name"])


def version_of(raw: Raw) -> int:
    return int(raw["metadata"]["resourceVersion"])


class Cache:
    """Feeds also answer with the keys that they told."""

    def __init__(self, on_change: Callable[[Keys], None] = lambda _: None) -> None:
        self._on_change = on_change
        self._objects: dict[Id, Raw] = {}
        self._terms: dict[Term, set[Id]] = {}
        self._gone: dict[str, int] = {}
        self._gone_before: dict[str, int] = {}
        self._listed_at: dict[Kind, int] = {}

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        return self._objects.get(Id(kind, namespace, name))

    def find(self, kind: Kind, term: Term) -> tuple[Raw, ...]:
        """In the order of their names."""
        ids = sorted((i for i in self._terms.get(term, ()) if i.kind is kind), key=lambda i: (i.namespace, i.name))
        return tuple(self._objects[i] for i in ids)

    def all(self, kind: Kind) -> Iterator[Raw]:
        return (raw for i, raw in self._objects.items() if i.kind is kind)

    def keys(self) -> Keys:
        """Every backend that exists or left something."""
        return frozenset(term.value for term, ids in self._terms.items() if term.sort == "backend" and ids)

    # -- feeding ------------------------------------------------------------------------------------------------------

    def put(self, kind: Kind, raw: Raw) -> Keys:
        """An object as it was at its version."""
        return self._tell(self._put(kind, raw))

    def _put(self, kind: Kind, raw: Raw) -> Keys:
        known = self._objects.get(id_of(kind, raw))
        if version_of(raw) < self._gone_at(raw["metadata"]["uid"]):
            return NOBODY
        if known is not None and version_of(known) >= version_of(raw):
            return NOBODY
        before = self._drop(id_of(kind, raw))
        self._objects[id_of(kind, raw)] = _without_bookkeeping(raw)
        for term in terms_of(kind, raw):
            self._terms.setdefault(term, set()).add(id_of(kind, raw))
        if kind is Kind.NODE and known is not None and _machine(known) == _machine(raw):
            return NOBODY
        return before | self._concerned(kind, raw)

    def remove(self, kind: Kind, raw: Raw) -> Keys:
        """A watch reported this object deleted, in its last version (or out of the watch's selector)."""
        self._gone[raw["metadata"]["uid"]] = version_of(raw)
        known = self._objects.get(id_of(kind, raw))
        if known is None or version_of(known) > version_of(raw):
            return NOBODY
        return self._tell(self._drop(id_of(kind, raw)))

    def forget(self, kind: Kind, namespace: str, name: str) -> Keys:
        """A GET did not find this name: whatever uid is known under it is gone for good."""
        known = self._objects.get(Id(kind, namespace, name))
        if known is None:
            return NOBODY
        self._gone[known["metadata"]["uid"]] = FOREVER
        return self._tell(self._drop(Id(kind, namespace, name)))

    def replace(
        self, kind: Kind, items: Iterable[Raw], version: int, covers: Callable[[Raw], bool] = lambda _: True
    ) -> Keys:
        """A LIST taken at this version; `covers` says which known objects it would have shown."""
        items = tuple(items)
        listed = {id_of(kind, raw) for raw in items}
        missing = [
            i
            for i, raw in self._objects.items()
            if i.kind is kind and i not in listed and version_of(raw) <= version and covers(raw)
        ]
        keys = [self._drop(i) for i in missing] + [self._put(kind, raw) for raw in items]
        return self._tell(NOBODY.union(*keys))

    def resync(self, kind: Kind, items: Iterable[Raw], version: int) -> Keys:
        """The periodic LIST of a kind, one at a time. A version lower than the last one means a restored etcd.

        After a restore versions say nothing about order any more, so everything known of the kind is dropped first.
        That of a kind which is not installed is later than every other, and is not the last one of anything.
        """
        dropped: list[Keys] = []
        if version < self._listed_at.get(kind, 0):
            self._gone, self._gone_before = {}, {}
            dropped = [self._drop(i) for i in tuple(self._objects) if i.kind is kind]
        self._listed_at[kind] = version if version < FOREVER else 0
        return self._tell(NOBODY.union(*dropped)) | self.replace(kind, items, version)

    def age(self) -> None:
        """Let go of what was seen gone two ages ago: called once per resync, which no late event outlives by one."""
        self._gone_before, self._gone = self._gone, {}

    # -- inside -------------------------------------------------------------------------------------------------------

    def _tell(self, keys: Keys) -> Keys:
        if keys:
            self._on_change(keys)
        return keys

    def _gone_at(self, uid: str) -> int:
        return max(self._gone.get(uid, 0), self._gone_before.get(uid, 0))

    def _drop(self, i: Id) -> Keys:
        raw = self._objects.get(i)
        if raw is None:
            return NOBODY
        keys = self._concerned(i.kind, raw)
        del self._objects[i]
        for term in terms_of(i.kind, raw):
            self._terms[term].discard(i)
            if not self._terms[term]:
                del self._terms[term]
        return keys

    def _concerned(self, kind: Kind, raw: Raw) -> Keys:
        terms = set(terms_of(kind, raw))
        if kind in SHARED:
            sharers = {i for term in terms for i in self._terms.get(term, ())}
            terms.update(term for i in sharers for term in terms_of(i.kind, self._objects[i]))
        return frozenset(term.value for term in terms if term.sort == "backend")


def _without_bookkeeping(raw: Raw) -> Raw:
    """managedFields are often half of an object, and tell the operator nothing."""
    metadata = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
    return {**raw, "metadata": metadata}


def _machine(node: Raw) -> tuple[object, ...]:
    """All that matters of a node: a heartbeat changes none of it."""
    ready = [c.get("status") for c in node.get("status", {}).get("conditions", ()) if c.get("type") == "Ready"]
    boot_id = node.get("status", {}).get("nodeInfo", {}).get("bootID")
    return node["metadata"]["uid"], boot_id, node.get("spec", {}).get("taints"), ready
