"""A PodDisruptionBudget, from the object as the API server sent it."""

from modelbackend_operator.manifests import budget_spec
from modelbackend_operator.model.budget import Budget
from modelbackend_operator.reading import Raw, labels_intact, mapping, owner_uid, ref, terminating


def budget_from(raw: Raw) -> Budget:
    """A field that the API server adds is none of our business; `minAvailable` would be another promise."""
    spec, made = mapping(raw.get("spec")), budget_spec(owner_uid(raw))
    as_made = all(spec.get(name) == value for name, value in made.items()) and "minAvailable" not in spec
    return Budget(ref=ref(raw), intact=labels_intact(raw) and as_made, terminating=terminating(raw))
