"""Chooses the object store by the address of an installation."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from urllib.request import url2pathname

from baobab.storage.objects.local import LocalStore
from baobab.storage.objects.store import ObjectStore


def store_at(url: str, folder: Path) -> ObjectStore:
    """Returns the store of a URL; `folder` is the store's own folder on this machine.

    "" stores objects in `folder`, `file:///DIR` in another folder. `s3://BUCKET/PREFIX` stores them in a bucket, and
    unfinished uploads in `folder`; `?endpoint=https://HOST&region=REGION` may follow. The store is not contacted yet.
    Raises ValueError, which says what is wrong without repeating the URL.
    """
    if not url:
        return LocalStore(folder)
    parts = urlsplit(url)
    if parts.scheme == "file":
        place = Path(url2pathname(parts.path))
        if parts.netloc or parts.query or parts.fragment or not place.is_absolute():
            raise ValueError("a folder for objects must be file:///DIR")
        return LocalStore(place)
    if parts.scheme != "s3" or not parts.netloc or parts.fragment:
        raise ValueError("the address of objects must be file:///DIR or s3://BUCKET/PREFIX")
    if "@" in parts.netloc:
        raise ValueError(
            "the address of objects must not hold credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    all_given = "" not in options.values()
    endpoint, region = options.pop("endpoint", ""), options.pop("region", "")
    if options or not all_given or (endpoint and not endpoint.startswith(("http://", "https://"))):
        raise ValueError("the only parameters of s3://BUCKET/PREFIX are endpoint=http(s)://HOST and region=REGION")

    # Imported only if needed, because the driver takes time to load.
    from baobab.storage.objects.s3 import S3Store

    return S3Store(parts.netloc, folder, prefix=parts.path.strip("/"), endpoint=endpoint, region=region)
