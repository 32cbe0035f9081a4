"""`kubectl mb`: ModelBackends from a terminal. Start reading at `commands.py`.

What is shown is worked out by pure functions over a `Sight` (what this user may see of a backend); only `look.py` reads
from the API server, only `orders.py` and `release.py` write to it, and only `connecting.py` knows the client library.
"""
