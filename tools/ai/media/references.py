"""Merges the images that a request refers to, under any field name, as strings or objects, into one list of URLs."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.net.addresses import AddressPolicy, EgressError, Target
from baobab.tools.ai.media.errors import BadReference

INPUT_IMAGES = "input_images"
FOLDED = ("image", "image_url", "image_uri", "reference_image", "input_image", "starting_image")
"""Other names of `input_images`."""
MOST_IMAGES = 14
LONGEST_URL = 2048
# A first check. The client that fetches the images resolves their hosts and checks the addresses again.
_PUBLIC = AddressPolicy()


def merge_images(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields with every image under `input_images`, in the order of `FOLDED`. Raises BadReference."""
    images = [
        url for name in (INPUT_IMAGES, *FOLDED) if fields.get(name) is not None for url in urls(name, fields[name])
    ]
    if len(images) > MOST_IMAGES:
        raise BadReference(INPUT_IMAGES, f"at most {MOST_IMAGES} images can be referred to")
    other_fields = {name: value for name, value in fields.items() if name not in FOLDED and name != INPUT_IMAGES}
    return {**other_fields, INPUT_IMAGES: images} if images else other_fields


def folded_names(fields: Mapping[str, Any]) -> list[str]:
    """Returns the names of the fields after merging; a null under another name of `input_images` does not count."""
    names = (INPUT_IMAGES if name in FOLDED else name for name, value in fields.items() if name not in FOLDED or value)
    return list(dict.fromkeys(names))


def urls(field: str, value: Any) -> list[str]:
    """Converts a URL, `{url}` or a list of these to a list of URLs that may be fetched. Raises BadReference."""
    if isinstance(value, list):
        return [_url(f"{field}.{index}", item) for index, item in enumerate(value)]
    return [_url(field, value)]


def _url(field: str, value: Any) -> str:
    url = value["url"] if isinstance(value, dict) and value.keys() == {"url"} else value
    if not isinstance(url, str):
        raise BadReference(field, "an image is a URL or `{url}`")
    if len(url) > LONGEST_URL:
        raise BadReference(field, f"a URL has at most {LONGEST_URL} characters")
    try:
        target = Target.parse(url, https_only=True)
    except EgressError as exc:
        raise BadReference(field, exc.message) from exc
    local = target.host == "localhost" or target.host.endswith(".localhost")
    if local or (target.address is not None and not _PUBLIC.is_permitted(target.address)):
        raise BadReference(field, "the host is not a public one")
    return url
