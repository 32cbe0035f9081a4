"""How properties are drawn: the same examples for the same test each time, however slow the machine is.

A commit passes or fails by what it is. `pytest --hypothesis-profile=default` draws others, to look for more.
"""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
