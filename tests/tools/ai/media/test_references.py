"""Images that a request refers to: every way to say it means the same, and none leads where it must not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab.tools.ai.media.references import FOLDED, INPUT_IMAGES, folded_names, merge_images
from tests.tools.ai.media.conftest import MediaBaobab

URL = "https://images.example.com/one.png"
urls = st.integers(0, 99).map(lambda number: f"https://images.example.com/{number}.png")
references = urls | urls.map(lambda url: {"url": url})
values = references | st.lists(references, max_size=2)


@given(st.dictionaries(st.sampled_from((INPUT_IMAGES, *FOLDED)), values | st.none()))
def test_every_image_is_folded_once_in_order_and_nothing_else_is_touched(fields: dict[str, Any]) -> None:
    plain = []
    for name in (INPUT_IMAGES, *FOLDED):
        value = fields.get(name)
        items = [] if value is None else value if isinstance(value, list) else [value]
        plain += [item["url"] if isinstance(item, dict) else item for item in items]
    merged_fields = merge_images({**fields, "size": "1K", "mask": URL})
    assert merged_fields.pop("size") == "1K"
    assert merged_fields.pop("mask") == URL
    assert merged_fields == ({INPUT_IMAGES: plain} if plain else {})
    assert set(folded_names(fields)) <= {INPUT_IMAGES}


@pytest.mark.parametrize("name", [INPUT_IMAGES, *FOLDED])
@pytest.mark.parametrize("value", [[URL], [{"url": URL}]])
async def test_an_image_may_go_by_any_of_its_names(baobab: MediaBaobab, name: str, value: Any) -> None:
    app = await baobab.create_app()
    variants = [value] if name == INPUT_IMAGES else [value, value[0]]
    for variant in variants:
        path = await baobab.submit_job(app, "image", **{name: variant})
        row = await baobab.get_row(path)
        assert row.request is None or row.request["parameters"] == {INPUT_IMAGES: [URL]}


@pytest.mark.parametrize(
    "url",
    [
        "http://images.example.com/one.png",
        "ftp://images.example.com/one.png",
        "file:///etc/passwd",
        "data:image/png;base64,iVBORw0KGgo=",
        "https://127.0.0.1/one.png",
        "https://169.254.169.254/latest/meta-data",
        "https://10.1.2.3/one.png",
        "https://[::1]/one.png",
        "https://[::ffff:127.0.0.1]/one.png",
        "https://0x7f000001/one.png",
        "https://2130706433/one.png",
        "https://localhost/one.png",
        "https://a.localhost/one.png",
        "https://user:secret@images.example.com/one.png",
        "https://images.example.com:22/one.png",
        "https://images.example.com/one two.png",
        "not a url",
        "",
        "https://images.example.com/" + "x" * 2048,
    ],
)
@pytest.mark.parametrize("name", ["image_url", "input_images"])
async def test_what_is_no_public_https_url_is_refused_with_the_fields_name(
    baobab: MediaBaobab, name: str, url: str
) -> None:
    refusal = await baobab.submit(await baobab.create_app(), "image", **{name: [url]})
    body = refusal.json()
    assert (refusal.status_code, body["code"]) == (400, "VALIDATION_INVALID_INPUT"), body
    assert body["details"][0]["field"].startswith(name)


@pytest.mark.parametrize("value", [7, {"url": 7}, {"url": URL, "detail": "high"}, [[URL]], {"uri": URL}, True])
async def test_what_is_no_image_at_all_is_refused(baobab: MediaBaobab, value: Any) -> None:
    app = await baobab.create_app()
    for name in ("image", "input_images"):
        refusal = await baobab.submit(app, "image", **{name: value if name == "image" else [value]})
        assert refusal.status_code == 400
        assert refusal.json()["details"][0]["field"].startswith(name)


async def test_at_most_fourteen_images_are_referred_to_under_all_names_together(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    assert (await baobab.submit(app, "image", image=[URL] * 7, input_images=[URL] * 7)).status_code == 202
    refusal = await baobab.submit(app, "image", image=[URL] * 8, input_images=[URL] * 7)
    assert refusal.status_code == 400
    assert (await baobab.submit(app, "image", input_images=[URL] * 15)).status_code == 400


async def test_a_mask_and_frames_are_held_to_the_same(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    inside = "https://10.0.0.1/mask.png"
    arguments = {"model": "openai/gpt-image-2", "input_images": [URL], "mask": inside}
    refusal = await baobab.submit(app, "image", **arguments)
    assert (refusal.status_code, refusal.json()["details"][0]["field"]) == (400, "mask")


async def test_a_frame_may_be_said_in_either_form(baobab: MediaBaobab) -> None:
    app, model = await baobab.create_app(), "openai/sora-2"
    frames = [
        {"url": URL, "frame": "first"},
        {"type": "image_url", "image_url": {"url": URL}, "frame_type": "first_frame"},
        {"type": "image_url", "url": URL},
    ]
    answers = [await baobab.submit(app, "video", model=model, duration=4, frame_images=[one]) for one in frames]
    # What both mean is read alike: this model begins with `input_images`.
    assert answers[0].json() == answers[1].json()
    assert answers[0].json()["code"] == "UNSUPPORTED_PARAM"
    assert answers[2].json()["code"] != "UNSUPPORTED_PARAM"
