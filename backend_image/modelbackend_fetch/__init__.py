"""Brings a model's file into a cache volume before the server starts: the program of the pod's init container.

`fetching` is the whole story; `cache` is what lies on the volume, `download` is one file over the wire, `sources` are
the places that a file can come from.
"""
