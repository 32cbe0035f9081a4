"""The PodDisruptionBudget of a backend."""

from dataclasses import dataclass

from modelbackend_operator.model.ref import Ref


@dataclass(frozen=True, slots=True)
class Budget:
    """The PodDisruptionBudget of this backend: what a node drain may take at once."""

    ref: Ref
    intact: bool = True
    """As this operator makes it; others may edit it."""
    terminating: bool = False
