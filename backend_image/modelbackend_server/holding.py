"""What holds a slot, and what it may do with the slots around it."""

from __future__ import annotations

from typing import Protocol

from .generation import Ending, Event, Generation
from .sampling import Logits
from .slots import Slot, Slots


class Holder(Protocol):
    """Who has a slot."""

    generation: Generation

    def take(self, slot: Slot[Holder], rows: Logits, most_likely: list[int]) -> None:
        """The logits after the slot's last `outputs` tokens, in parts if these are evaluated in parts."""


class Owner(Protocol):
    """The slots of a model, to those who hold some of them."""

    @property
    def slots(self) -> Slots[Holder]: ...
    @property
    def can_trim(self) -> bool: ...
    def emit(self, generation: Generation, event: Event) -> None: ...
    def end(self, generation: Generation, ending: Ending, stop: str | None = None) -> None: ...
    def occupy(self, slot: Slot[Holder], holder: Holder) -> None: ...
    def release(self, slot: Slot[Holder]) -> None: ...
    def trim(self, slot: Slot[Holder], length: int) -> None: ...
    def vacate(self, slot: Slot[Holder], source: Slot[Holder]) -> None: ...
    def copy(self, source: Slot[Holder], target: Slot[Holder], length: int) -> None: ...
