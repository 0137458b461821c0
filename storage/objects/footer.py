"""The footer of an object's file: size, digest and content type, which are known only after the content.

One file holds both, so that no crash can combine the bytes of one object with the type of another. Layout: the content,
JSON, the length of the JSON in four bytes, eight magic bytes.
"""

from __future__ import annotations

import json
import os
import struct
from typing import BinaryIO

from baobab.storage.objects.errors import ObjectDamaged
from baobab.storage.objects.store import ObjectInfo

_MARK = b"baobab\x00\x01"
_END = struct.Struct(f">I{len(_MARK)}s")
_LONGEST = 4096


def encode_footer(info: ObjectInfo) -> bytes:
    text = json.dumps(info._asdict()).encode()
    return text + _END.pack(len(text), _MARK)


def read_footer(file: BinaryIO, key: str) -> ObjectInfo:
    """Reads the footer; the position in the file is undefined afterwards. Raises ObjectDamaged, naming the key."""
    end = file.seek(0, os.SEEK_END)
    tail = file.seek(max(0, end - _LONGEST))
    data = file.read(end - tail)
    if len(data) < _END.size:
        raise ObjectDamaged(key, "it has no footer")
    length, mark = _END.unpack(data[-_END.size :])
    if mark != _MARK or length > len(data) - _END.size:
        raise ObjectDamaged(key, "it has no footer")
    try:
        info = ObjectInfo(**json.loads(data[-_END.size - length : -_END.size]))
    except (ValueError, TypeError) as exc:
        raise ObjectDamaged(key, "its footer cannot be read") from exc
    if info.size != end - _END.size - length:
        raise ObjectDamaged(key, "its size differs from its footer")
    return info
