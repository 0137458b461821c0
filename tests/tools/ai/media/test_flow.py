"""Images and videos from the request to the file, with the built-in models: no key, no network."""

import asyncio
import ssl
import threading
from typing import Any

import pytest

from tests.mcp_server.mcp_requests import ERAS, call_tool, read_refusal
from tests.people import create_key, create_person
from tests.tools.ai.media.conftest import BUILT_IN, IMAGE, TERMINAL, Kind, MediaBaobab

KINDS: tuple[Kind, ...] = ("image", "video")
MAGIC = {"image": (b"\x89PNG\r\n\x1a\n", "image/png"), "video": (b"ftyp", "video/mp4")}
ID = "00000000-0000-4000-8000-000000000000"
ADA, EVE = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def plural(kind: Kind) -> str:
    return f"{kind}s"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_is_accepted_polled_and_its_file_downloaded(baobab: MediaBaobab, kind: Kind) -> None:
    app = await baobab.create_app()
    path = await baobab.submit_job(app, kind)
    first = await baobab.poll(path)
    assert first["status"] in ("pending", "in_progress", *TERMINAL)
    job = await baobab.poll_at_end(path)
    here = f"http://127.0.0.1:8000{path}"
    assert job == {
        "job_id": path.rpartition("/")[2],
        "status": "completed",
        "model": BUILT_IN[kind],
        "polling_url": here,
        "content_urls": [f"{here}/content?index=0"],
        "error": None,
        "created_at": first["created_at"],
        "charged_credits_usd": 0,
        "settled_at": job["settled_at"],
    }
    assert job["settled_at"] > job["created_at"]
    file = await baobab.get(job["content_urls"][0])
    magic, content_type = MAGIC[kind]
    assert (file.status_code, file.headers["content-type"]) == (200, content_type)
    assert magic in file.content[:16]
    assert int(file.headers["content-length"]) == len(file.content)
    # Without an index it is the first; the same bytes each time, and the same job from then on.
    assert (await baobab.get(f"{path}/content")).content == file.content
    assert await baobab.poll(path) == job


async def test_a_job_that_is_under_way_has_nothing_to_show_yet(baobab: MediaBaobab) -> None:
    baobab.fake.videos = "in_progress"
    path = await baobab.submit_job(await baobab.create_app(), "video", model="openai/sora-2", duration=4)
    await baobab.run_due_jobs()
    job = await baobab.poll(path)
    assert (job["status"], job["content_urls"], job["error"]) == ("pending", [], None)
    assert (job["charged_credits_usd"], job["settled_at"]) == (None, None)
    await baobab.run_due_jobs(1)
    assert (await baobab.poll(path))["status"] == "in_progress"


async def test_several_images_have_an_address_each(baobab: MediaBaobab) -> None:
    job = await baobab.generate(await baobab.create_app(), "image", n=3, seed=7)
    files = [await baobab.get(url) for url in job["content_urls"]]
    assert [url[-7:] for url in job["content_urls"]] == ["index=0", "index=1", "index=2"]
    assert len({file.content for file in files}) == 3


async def test_a_second_picture_reads_no_certificates_while_other_calls_wait(
    baobab: MediaBaobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id, loop_thread = await baobab.create_app(), threading.get_ident()
    read: list[Any] = []
    original: Any = ssl.SSLContext.load_verify_locations

    def note(*arguments: Any, **options: Any) -> Any:
        if threading.get_ident() == loop_thread:
            read.append(arguments)
        return original(*arguments, **options)

    await baobab.generate(app_id, "image", model=IMAGE)
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", note)
    await baobab.generate(app_id, "image", model=IMAGE)
    assert len(baobab.fake.submissions) == 2
    assert not read


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("era", ERAS)
async def test_the_same_goes_over_mcp_where_the_file_is_told_by_its_address(
    baobab: MediaBaobab, kind: Kind, era: str
) -> None:
    app = await baobab.create_app()
    arguments = {"app_id": app, "model": BUILT_IN[kind], "prompt": "A baobab"}
    result = await call_tool(baobab, f"{plural(kind)}_generate", arguments, era=era)
    job_arguments = {"app_id": app, "job_id": result["structuredContent"]["job_id"]}
    await baobab.poll_at_end(f"/v1/{app}/{kind}s/completions/{job_arguments['job_id']}")
    job = (await call_tool(baobab, f"{plural(kind)}_job", job_arguments, era=era))["structuredContent"]
    assert job["status"] == "completed"
    result = await call_tool(baobab, f"{plural(kind)}_content", {**job_arguments, "index": 0}, era=era)
    text = result["content"][0]["text"]
    assert job["content_urls"][0] in text
    assert MAGIC[kind][1] in text
    refusal = await call_tool(baobab, f"{plural(kind)}_content", {**job_arguments, "index": 1}, era=era)
    assert read_refusal(refusal)["code"] == "INDEX_OUT_OF_RANGE"


@pytest.mark.parametrize("kind", KINDS)
async def test_the_models_are_listed_with_the_apps_models(baobab: MediaBaobab, kind: Kind) -> None:
    models = (await baobab.get(f"/v1/{await baobab.create_app()}/ai/models")).json()["models"]
    assert {m["modality"] for m in models if m["id"] == BUILT_IN[kind]} == {kind}


REFUSED: list[tuple[Kind, dict[str, Any], int, str]] = [
    ("image", {"model": "baobab/nothing"}, 404, "MODEL_NOT_FOUND"),
    ("video", {"model": "baobab/nothing"}, 404, "MODEL_NOT_FOUND"),
    ("image", {"model": "baobab/echo"}, 400, "WRONG_MODALITY"),
    ("image", {"model": "baobab/film"}, 400, "WRONG_MODALITY"),
    ("video", {"model": "baobab/picture"}, 400, "WRONG_MODALITY"),
    ("image", {"prompt": None}, 400, "VALIDATION_INVALID_TYPE"),
    ("image", {"prompt": ""}, 400, "VALIDATION_INVALID_INPUT"),
    ("image", {"n": 0}, 400, "VALIDATION_INVALID_INPUT"),
    ("image", {"n": 11}, 400, "VALIDATION_INVALID_INPUT"),
    ("image", {"n": "2"}, 400, "VALIDATION_INVALID_TYPE"),
    ("image", {"size": "enormous"}, 400, "VALIDATION_INVALID_INPUT"),
    ("video", {"duration": 100_000}, 400, "VALIDATION_INVALID_INPUT"),
    ("video", {"generate_audio": "yes"}, 400, "VALIDATION_INVALID_TYPE"),
]


@pytest.mark.parametrize(("kind", "body", "status", "code"), REFUSED)
async def test_what_cannot_be_made_is_refused_at_once(
    baobab: MediaBaobab, kind: Kind, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await baobab.submit(await baobab.create_app(), kind, **body)
    refusal = answer.json()
    assert (answer.status_code, refusal["code"]) == (status, code), refusal
    assert isinstance(refusal["error"], str)
    assert refusal["remediation"]


async def test_faults_of_the_body_are_listed(baobab: MediaBaobab) -> None:
    answer = await baobab.submit(await baobab.create_app(), "image", n=0, seed="x", prompt="")
    assert answer.status_code == 400
    assert {fault["field"] for fault in answer.json()["details"]} == {"n", "seed", "prompt"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"duration": 4}, "duration"),
        ({"mask": "https://example.com/m.png"}, "mask"),
        ({"nobody_knows": None}, "nobody_knows"),
        ({"provider": {"quality": "high"}}, "provider.quality"),
    ],
)
async def test_what_the_model_does_not_take_is_refused_with_all_that_it_takes(
    baobab: MediaBaobab, body: dict[str, Any], field: str
) -> None:
    answer = await baobab.submit(await baobab.create_app(), "image", **body)
    refusal = answer.json()
    assert (answer.status_code, refusal["code"]) == (400, "UNSUPPORTED_PARAM")
    assert f"`{field}`" in refusal["error"]
    assert refusal["supported_top_level"] == ["aspect_ratio", "input_images", "n", "seed", "size"]
    assert refusal["supported_provider"] == []


async def test_a_model_with_fields_of_its_own_names_them(baobab: MediaBaobab) -> None:
    answer = await baobab.submit(await baobab.create_app(), "image", model="openai/gpt-image-2", aspect_ratio="1:1")
    body = answer.json()
    assert {"size", "n", "input_images", "mask"} <= set(body["supported_top_level"])
    assert {"quality", "background"} <= set(body["supported_provider"])


async def test_a_video_model_in_chat_is_sent_to_its_own_address(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    body = {"model": "baobab/film", "messages": [{"role": "user", "content": "Hello!"}]}
    answer = await baobab.client.post(f"/v1/{app}/chat/completions", json=body, headers=baobab.owner)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "USE_VIDEO_ENDPOINT")
    assert "/v1/{app_id}/videos/completions" in answer.json()["error"]["message"]


async def test_an_app_that_allows_other_models_only_refuses_this_one(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    body = {"allowedModels": ["baobab/film"]}
    assert (await baobab.client.put(f"/v1/{app}/ai/config", json=body, headers=baobab.owner)).status_code == 200
    refusal = await baobab.submit(app, "image")
    assert (refusal.status_code, refusal.json()["code"]) == (403, "MODEL_NOT_ALLOWED")
    assert (await baobab.submit(app, "video")).status_code == 202


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_that_is_not_there_is_not_found(baobab: MediaBaobab, kind: Kind) -> None:
    app, other = await baobab.create_app(), await baobab.create_app()
    job = (await baobab.generate(app, kind))["job_id"]
    wrong: Kind = "video" if kind == "image" else "image"
    for path in (
        f"{app}/{kind}s/completions/{ID}",
        f"{app}/{kind}s/completions/img-01H",
        f"{other}/{kind}s/completions/{job}",
    ):
        for rest in ("", "/content"):
            answer = await baobab.get(f"/v1/{path}{rest}")
            assert (answer.status_code, answer.json()["code"]) == (404, "JOB_NOT_FOUND"), path
    assert (await baobab.get(f"/v1/{app}/{wrong}s/completions/{job}")).json()["code"] == "JOB_NOT_FOUND"


@pytest.mark.parametrize(
    ("index", "status", "code"),
    [
        ("-1", 400, "INVALID_INDEX"),
        ("one", 400, "INVALID_INDEX"),
        ("1.0", 400, "INVALID_INDEX"),
        ("", 400, "INVALID_INDEX"),
        ("%2B1", 400, "INVALID_INDEX"),
        ("1", 404, "INDEX_OUT_OF_RANGE"),
        ("9" * 18, 404, "INDEX_OUT_OF_RANGE"),
        ("9" * 40, 400, "INVALID_INDEX"),
    ],
)
async def test_an_index_that_no_file_has_is_refused(baobab: MediaBaobab, index: str, status: int, code: str) -> None:
    path = await baobab.submit_job(await baobab.create_app(), "image")
    await baobab.poll_at_end(path)
    answer = await baobab.get(f"{path}/content?index={index}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_files_are_refused_until_the_job_is_completed(baobab: MediaBaobab) -> None:
    baobab.fake.videos = "in_progress"
    path = await baobab.submit_job(await baobab.create_app(), "video", model="openai/sora-2")
    await baobab.run_due_jobs()
    await baobab.run_due_jobs(1)
    early = await baobab.get(f"{path}/content?index=0")
    assert (early.status_code, early.json()["code"], early.json()["current_status"]) == (
        409,
        "JOB_NOT_COMPLETED",
        "in_progress",
    )
    baobab.fake.videos = "failed"
    await baobab.poll_at_end(path)
    never = await baobab.get(f"{path}/content?index=0")
    assert (never.status_code, never.json()["current_status"]) == (409, "failed")


async def test_users_see_their_own_jobs_only_and_whoever_submitted_has_the_files(baobab: MediaBaobab) -> None:
    app, other = await baobab.create_app(), await baobab.create_app()
    ada, eve = await baobab.user_headers(app, "ada"), await baobab.user_headers(app, "eve")
    app_key = await create_key(baobab, key_scope="app", target_app_id=app)
    colleague = (await create_person(baobab, "colleague", role="member")).headers
    stranger = (await create_person(baobab, "stranger")).headers
    foreign = await baobab.user_headers(other, "ada")
    path = await baobab.submit_job(app, "image", ada)
    await baobab.poll_at_end(path, ada)
    content = f"{path}/content?index=0"
    for by, poll, download in (
        (ada, 200, 200),
        (eve, 404, 404),
        (app_key, 200, 403),
        (baobab.owner, 200, 403),
        (colleague, 200, 403),
        (stranger, 403, 403),
        (foreign, 403, 403),
    ):
        assert (await baobab.get(path, by)).status_code == poll
        assert (await baobab.get(content, by)).status_code == download
    body = (await baobab.get(content, baobab.owner)).json()
    assert (body["error"], body["code"]) == ("forbidden", "FORBIDDEN")
    assert (await baobab.get(content, eve)).json()["code"] == "JOB_NOT_FOUND"
    assert (await baobab.client.get(path)).status_code == 401


async def test_a_user_for_whom_a_key_acts_is_the_user(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    app_key = await create_key(baobab, key_scope="app", target_app_id=app)
    for_ada, for_eve = [{**app_key, "x-platform-as-user": user} for user in (ADA, EVE)]
    path = await baobab.submit_job(app, "image", for_ada)
    await baobab.poll_at_end(path, for_ada)
    statuses = [(await baobab.get(f"{path}/content", by)).status_code for by in (for_ada, for_eve, app_key)]
    assert statuses == [200, 404, 403]
    assert (await baobab.get(f"{path}/content", await baobab.user_headers(app, ADA))).status_code == 200


async def test_files_are_kept_for_thirty_days_and_jobs_for_ninety(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    path = await baobab.submit_job(app, "image")
    job = await baobab.poll_at_end(path)
    objects = baobab.application.services.regions["local"].objects
    await baobab.run_sweep(29 * 86_400)
    assert (await baobab.get(job["content_urls"][0])).status_code == 200
    await baobab.run_sweep(2 * 86_400)
    response = await baobab.get(job["content_urls"][0])
    assert (response.status_code, response.json()["code"]) == (502, "CONTENT_UNAVAILABLE")
    assert await objects.list(f"{app}/", "", 10) == []
    assert await baobab.poll(path) == job
    await baobab.run_sweep(60 * 86_400)
    assert (await baobab.get(path)).status_code == 404


async def test_a_deleted_app_takes_its_jobs_and_files_along(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    path = await baobab.submit_job(app, "image")
    await baobab.poll_at_end(path)
    baobab.fake.going.clear()
    late = await baobab.submit_job(app, "image", model="openai/gpt-image-2")
    await asyncio.wait_for(baobab.fake.arrival.wait(), 20)
    assert (await baobab.client.delete(f"/apps/{app}", headers=baobab.owner)).status_code in (200, 204)
    # What was being made when the app went is made, and goes too.
    baobab.fake.going.set()
    await baobab.run_due_jobs(61)
    assert await baobab.get_row(path) is None
    assert await baobab.get_row(late) is None
    assert await baobab.application.services.regions["local"].objects.list(f"{app}/", "", 10) == []
