"""Which store keeps the objects, by the address of an installation."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from urllib.request import url2pathname

from baobab.storage.objects.local import LocalStore
from baobab.storage.objects.store import ObjectStore


def store_at(url: str, folder: Path) -> ObjectStore:
    """The store of a URL; `folder` is its own place on this machine.

    "" keeps the objects in `folder`, `file:///DIR` in a folder elsewhere. `s3://BUCKET/PREFIX` keeps them in a bucket,
    with what is not whole yet in `folder`; `?endpoint=https://HOST&region=REGION` may follow. Nothing is asked of it
    yet. Raises ValueError, which says what is wrong without repeating the URL.
    """
    if not url:
        return LocalStore(folder)
    parts = urlsplit(url)
    if parts.scheme == "file":
        place = Path(url2pathname(parts.path))
        if parts.netloc or parts.query or parts.fragment or not place.is_absolute():
            raise ValueError("a folder for objects is named as file:///DIR")
        return LocalStore(place)
    if parts.scheme != "s3" or not parts.netloc or parts.fragment:
        raise ValueError("objects are kept at file:///DIR or s3://BUCKET/PREFIX")
    if "@" in parts.netloc:
        raise ValueError("an address of objects holds no credentials: they come from AWS_ACCESS_KEY_ID and the like")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    given = "" not in options.values()
    endpoint, region = options.pop("endpoint", ""), options.pop("region", "")
    if options or not given or (endpoint and not endpoint.startswith(("http://", "https://"))):
        raise ValueError("behind s3://BUCKET/PREFIX may follow endpoint=http(s)://HOST and region=REGION")

    # Loading the driver costs a start that does not need it.
    from baobab.storage.objects.s3 import S3Store

    return S3Store(parts.netloc, folder, prefix=parts.path.strip("/"), endpoint=endpoint, region=region)
