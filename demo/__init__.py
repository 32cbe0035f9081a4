"""`make demo`: the whole path on a local cluster, each step with the command a user would type."""
