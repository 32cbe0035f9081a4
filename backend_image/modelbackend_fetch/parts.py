"""Models in several files, named as llama.cpp's gguf-split names them: `NAME-00001-of-00003.gguf`."""

from __future__ import annotations

import re

MANY_PARTS = 1000
_PART = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


def parts_of(name: str) -> tuple[str, ...]:
    """All files of the model whose first is `name`; the name itself where it is no part of several.

    Raises ValueError for a part that is not the first: llama.cpp opens a model by its first part.
    """
    found = _PART.match(name)
    if found is None:
        return (name,)
    number, count = int(found["number"]), int(found["count"])
    if number != 1 or not 1 <= count <= MANY_PARTS:
        raise ValueError(f"{name} is not the first of at most {MANY_PARTS} parts: name the file -00001-of-{count:05}")
    return tuple(f"{found['stem']}-{index:05}-of-{count:05}.gguf" for index in range(1, count + 1))
