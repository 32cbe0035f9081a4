"""The vocabulary of the operator: what is observed, and nothing else. Start reading at `observation.py`.

A reconcile is `observe -> decide -> act`. Here is the first noun: an `Observation` is everything that `decide` may
know about one ModelBackend, frozen and free of I/O, each part of it in the file of its name. The second noun, what
may be done, is in `actions.py`. All instants are timezone-aware UTC; all durations are whole seconds and say so in
their names.

An observation may be old. That is not a fault to be hidden: every write carries the uid and resourceVersion it was
decided from, so an old observation leads to a conflict and to another look, never to a wrong effect.
"""
