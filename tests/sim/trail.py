"""Where a search has been."""

from array import array


class Trail:
    """Every state by its number: how it was first reached, whether it is a goal, and which fair steps lead to it."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[tuple[tuple[int, ...], int]]] = {}
        self.labels: list[str] = []
        self._parents = array("l")
        self._goals = bytearray()
        self._sources, self._targets = array("L"), array("L")

    def find(self, key: tuple[int, int], budget: tuple[int, ...]) -> int | None:
        """A known state of the same world in which at least as much may still go wrong: whatever can follow on this
        one follows on that, and what is fair does not ask how much may go wrong."""
        for known, number in self._known.get(key, ()):
            if known == budget or all(there >= here for there, here in zip(known, budget, strict=True)):
                return number
        return None

    def add(self, key: tuple[int, int], budget: tuple[int, ...], parent: int, label: str, is_goal: bool) -> int:
        self._known.setdefault(key, []).append((budget, len(self.labels)))
        self._parents.append(parent)
        self.labels.append(label)
        self._goals.append(is_goal)
        return len(self.labels) - 1

    def join(self, source: int, target: int) -> None:
        self._sources.append(source)
        self._targets.append(target)

    def path(self, number: int) -> list[str]:
        path = []
        while number >= 0:
            path.append(self.labels[number])
            number = self._parents[number]
        return path[::-1]

    def first_stuck(self) -> int | None:
        """The first state, in order of depth, from which no goal can be reached."""
        leading: list[list[int]] = [[] for _ in self.labels]
        for source, target in zip(self._sources, self._targets, strict=True):
            leading[target].append(source)
        good = bytearray(self._goals)
        reached = [number for number, is_goal in enumerate(good) if is_goal]
        while reached:
            for source in leading[reached.pop()]:
                if not good[source]:
                    good[source] = True
                    reached.append(source)
        stuck = good.find(0)
        return None if stuck < 0 else stuck
