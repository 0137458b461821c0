"""The pages of keys, of an app's store, usage, audit log and mails."""

import io
import re
from html import unescape
from urllib.parse import quote

import pytest
from PIL import Image

from tests.http.console.test_console import HOSTILE, sign_in
from tests.http.console.test_runs import Runner

HOSTILE_NAME = "<script>alert(1)<b>.txt"


async def test_a_key_is_made_and_shown_once_and_revoked(visitor: Runner) -> None:
    page = await visitor.open("/console/keys")
    (organisation,) = set(re.findall(r'name="of" value="([^"]+)"', page.text))
    fields = {"name": "from the console", "of": organisation, "approval": "write", "toolset.kv": "yes"}
    response = await visitor.send("/console/keys/create", page, **fields)
    assert response.status_code == 200
    (key,) = re.findall(r">(bb_sk_\w+)</pre>", response.text)
    key_page = await visitor.open("/console/keys")
    assert key not in key_page.text
    rows = [row for row in key_page.text.split('<li class="row">') if "from the console" in row]
    assert "kv · asks before every change" in rows[0]
    (path,) = re.findall(r'action="(/console/keys/[^"]+/revoke)"', rows[0])
    asks = path.replace("/revoke", "/asks")
    assert (await visitor.send(asks, key_page, of=organisation, tool="kv_incr", ask="never")).status_code == 303
    assert "<code>kv_incr</code>: never ask" in (await visitor.open("/console/keys")).text
    assert (await visitor.send(asks, key_page, of=organisation, tool="nothing", ask="never")).status_code == 404
    assert (await visitor.send(path, key_page, of=organisation)).status_code == 303
    refusal = await visitor.baobab.client.get("/apps", headers={"authorization": f"Bearer {key}"})
    assert refusal.status_code == 401


async def test_a_key_is_made_with_an_end_and_a_budget(visitor: Runner) -> None:
    page = await visitor.open("/console/keys")
    (organisation,) = set(re.findall(r'name="of" value="([^"]+)"', page.text))
    arguments = {
        "name": "for a while",
        "of": organisation,
        "last_day": "2099-12-31",
        "most_usd": "2.50",
        "period": "day",
    }
    assert (await visitor.send("/console/keys/create", page, **arguments)).status_code == 200
    rows = [row for row in (await visitor.open("/console/keys")).text.split('<li class="row">') if "for a while" in row]
    assert "2100-01-01 00:00:00 UTC" in rows[0]
    assert "may spend $2.50 a day" in rows[0]
    late = await visitor.send("/console/keys/create", page, name="late", of=organisation, last_day="2001-01-01")
    assert (late.status_code, "is in the past" in late.text) == (400, True)


async def test_a_key_for_one_app_is_made(visitor: Runner) -> None:
    page = await visitor.open("/console/keys")
    response = await visitor.send(
        "/console/keys/create", page, name="of one app", app_id=visitor.app_id, read_only="yes"
    )
    assert response.status_code == 200
    rows = [row for row in (await visitor.open("/console/keys")).text.split('<li class="row">') if "of one app" in row]
    assert re.search(r"only in app-\d+<", rows[0])
    assert "only reads" in rows[0]


async def test_keys_are_found_by_prefix_and_a_value_is_made_changed_and_deleted(visitor: Runner) -> None:
    kv = f"/console/apps/{visitor.app_id}/kv"
    entry = f"{kv}/entry?key={quote('note:/a b', safe='')}"
    page = await visitor.open(entry)
    assert "There is no such key yet" in page.text
    response = await visitor.send(f"{kv}/entry/store", page, key="note:/a b", expected="null", value='{"n": 1.5}')
    assert response.headers["location"] == f"{entry}&saved=1"
    page = await visitor.open(entry)
    assert "&#34;n&#34;: 1.5" in page.text
    expected_value = unescape(re.findall(r'name="expected" value="([^"]*)"', page.text)[0])
    assert "Who may use this key" in page.text
    assert "No rule names it." in page.text
    rule = {"pattern": "note:**", "read": "public", "write": "deny"}
    assert (await visitor.send(f"{kv}/rules/add", page, **rule)).status_code == 303
    page_text = (await visitor.open(entry)).text
    assert "and anybody, without signing in" in page_text
    assert page_text.count('Rule <code class="theirs">note:**</code>') == 2
    assert (await visitor.send(f"{kv}/entry/expire", page, key="note:/a b", ttl="60")).status_code == 303
    arguments = {"key": "note:/a b", "expected": expected_value, "value": '{"n": 2}'}
    assert (await visitor.send(f"{kv}/entry/store", page, **arguments)).status_code == 303
    assert re.search(r"It expires in (1 minute|less than a minute)", (await visitor.open(entry)).text)
    # Somebody else has changed it since this page was made.
    late = await visitor.send(f"{kv}/entry/store", page, **arguments)
    assert (late.status_code, "Somebody has changed this value" in late.text) == (409, True)
    assert f"entry?key={quote('note:/a b')}" in (await visitor.open(f"{kv}?prefix=note:")).text
    assert "No key starts with" in (await visitor.open(f"{kv}?prefix=other")).text
    assert (await visitor.send(f"{kv}/entry/delete", page, key="note:/a b")).headers["location"] == kv
    assert "No key yet" in (await visitor.open(kv)).text


@pytest.mark.parametrize(("form", "fields"), [
    ("store", {"value": "{", "expected": "null"}), ("store", {"value": "1", "expected": "}"}),
    ("expire", {"ttl": "soon"}), ("expire", {"ttl": "-1"}), ("store", {"key": "_own", "value": "1"}),
    ("delete", {"key": ""})])  # fmt: skip
async def test_what_is_no_value_or_key_is_refused(visitor: Runner, form: str, fields: dict[str, str]) -> None:
    kv = f"/console/apps/{visitor.app_id}/kv"
    page = await visitor.open(f"{kv}/entry?key=a")
    assert (await visitor.send(f"{kv}/entry/{form}", page, **{"key": "a", **fields})).status_code == 400


async def test_a_hostile_value_is_inert_in_the_form_of_it(visitor: Runner) -> None:
    path = f"/v1/{visitor.app_id}/kv/hostile"
    await visitor.baobab.client.put(path, json={"value": HOSTILE}, headers=visitor.baobab.owner)
    page = await visitor.open(f"/console/apps/{visitor.app_id}/kv/entry?key=hostile")
    assert "<script>alert" not in page.text
    assert not set(page.text) & {"\u202e", "\u200b", "\x1b"}


async def test_usage_is_shown_of_all_apps_or_of_one(visitor: Runner) -> None:
    assert "Nobody has called a model" in (await visitor.open("/console/usage")).text
    call = {"model": "baobab/echo", "messages": [{"role": "user", "content": "Hello"}]}
    path, owner = f"/v1/{visitor.app_id}/chat/completions", visitor.baobab.owner
    assert (await visitor.baobab.client.post(path, json=call, headers=owner)).status_code == 200
    for query, bars in {"": 30, "?days=7": 7, "?days=1000": 30, f"?days=90&app={visitor.app_id}": 90}.items():
        page = await visitor.open(f"/console/usage{query}")
        # Two charts: of the costs and of the calls.
        assert page.text.count("</title></rect>") == 2 * bars


async def test_the_audit_log_is_filtered_and_paged(visitor: Runner) -> None:
    for mode in ("public", "authenticated") * 30:
        path = f"/v1/{visitor.app_id}/config/access-mode"
        await visitor.baobab.client.patch(path, json={"access_mode": mode}, headers=visitor.baobab.owner)
    log = f"/console/apps/{visitor.app_id}/audit-log"
    page = await visitor.open(f"{log}?event_type=app.config.access_mode")
    assert page.text.count('<li class="row">') == 50
    (older,) = re.findall(r'href="([^"]+)">Older<', page.text)
    assert (await visitor.open(unescape(older))).text.count('<li class="row">') == 10
    assert "No entry matches" in (await visitor.open(f"{log}?category=ai&from=2026-01-01")).text
    assert (await visitor.baobab.client.get(f"{log}?from=never", headers=visitor.browser)).status_code == 400


async def test_the_audit_log_shows_only_what_was_refused(visitor: Runner) -> None:
    await visitor.baobab.create_app(name="taken")
    path = f"/apps/{visitor.app_id}"
    await visitor.baobab.client.patch(path, json={"name": "taken"}, headers=visitor.baobab.owner)
    log = f"/console/apps/{visitor.app_id}/audit-log"
    refused_page, succeeded_page = [await visitor.open(f"{log}?success={value}") for value in ("false", "true")]
    assert refused_page.text.count('<li class="row">') == 1
    assert "app.rename_failed" in refused_page.text
    assert '<option value="false" selected>refused</option>' in refused_page.text
    assert "app.create" in succeeded_page.text
    assert "app.rename_failed" not in succeeded_page.text


async def test_a_mail_to_a_user_is_read_with_its_code(visitor: Runner) -> None:
    mails = f"/console/apps/{visitor.app_id}/mails"
    assert "No mail yet" in (await visitor.open(mails)).text
    body = {"email": "ada@example.com", "password": "correct Horse 7!"}
    response = await visitor.baobab.client.post(f"/auth/{visitor.app_id}/signup", json=body)
    assert response.is_success, response.text
    page = await visitor.open(mails)
    (path,) = re.findall(rf'href="({mails}/[^"]+)"', page.text)
    assert re.search(r"\d{6}", (await visitor.open(path)).text)


async def test_every_page_of_an_app_is_closed_to_strangers(visitor: Runner) -> None:
    baobab = visitor.baobab
    body = {"email": "eve@example.com", "password": "correct Horse 7!"}
    await baobab.client.post("/platform/signup", json={**body, "name": "Eve"})
    token = (await baobab.client.post("/platform/login", json=body)).json()["token"]
    headers = {"authorization": f"Bearer {token}"}
    key = (await baobab.client.post("/api-keys", json={"name": "hers"}, headers=headers)).json()["key"]
    hers = Runner(baobab, visitor.app_id, await sign_in(baobab, key))
    app = f"/console/apps/{visitor.app_id}"
    for path in (f"{app}/kv", f"{app}/kv/entry?key=a", f"{app}/audit-log", f"{app}/mails"):
        assert (await baobab.client.get(path, headers=hers.browser)).status_code in (403, 404), path
    page = await hers.open("/console")
    response = await hers.send(f"{app}/kv/entry/store", page, key="a", expected="null", value="1")
    assert response.status_code in (403, 404)


async def test_files_are_announced_sent_shown_and_deleted(visitor: Runner) -> None:
    here = f"/console/apps/{visitor.app_id}/files"
    page = await visitor.open(here)
    assert "There is no file yet" in page.text
    picture = io.BytesIO()
    Image.new("RGB", (40, 40)).save(picture, "PNG")
    fields = {"filename": "red.png", "type": "image/png", "size": str(len(picture.getvalue())), "public": "yes"}
    response = await visitor.send(f"{here}/announce", page, **fields)
    (address,) = re.findall(r'data-address="([^"]+)"', response.text)
    headers = {"content-type": "image/png"}
    stored_response = await visitor.baobab.client.put(unescape(address), content=picture.getvalue(), headers=headers)
    assert stored_response.status_code == 200
    assert (await visitor.send(f"{here}/write", page, filename=HOSTILE_NAME, content="Hello")).status_code == 303
    page = await visitor.open(here)
    assert "2 files" in page.text
    assert "all users" in page.text
    assert HOSTILE_NAME not in page.text
    assert "&lt;script&gt;alert(1)" in page.text
    (thumbnail,) = re.findall(r'<img src="([^"]+)"', page.text)
    shown_response = await visitor.baobab.client.get(unescape(thumbnail))
    assert shown_response.headers["content-type"] == "image/webp"
    visibilities = re.findall(rf'action="({here}/[^"]+/visibility)"', page.text)
    assert page.text.count('<span class="tag">all users</span>') == 1
    for path in visibilities:
        assert (await visitor.send(path, page, public="yes")).status_code == 303
    page = await visitor.open(here)
    assert page.text.count('<span class="tag">all users</span>') == 2
    assert (await visitor.send(visibilities[0], page, public="no")).status_code == 303
    page = await visitor.open(here)
    assert page.text.count('<span class="tag">all users</span>') == 1
    deletions = re.findall(rf'action="({here}/[^"]+/delete)"', page.text)
    for path in deletions:
        assert (await visitor.send(path, page)).status_code == 303
    assert "There is no file yet" in (await visitor.open(here)).text


async def test_files_are_found_renamed_copied_published_and_deleted_many_at_a_time(visitor: Runner) -> None:
    here = f"/console/apps/{visitor.app_id}/files"
    page = await visitor.open(here)
    for name in ("notes/a.txt", "b.txt"):
        await visitor.send(f"{here}/write", page, filename=name, content="Hello")
    page = await visitor.open(f"{here}?prefix=notes/&sort=name")
    (renaming,) = re.findall(rf'action="({here}/[^"]+/rename)"', page.text)
    (once,) = re.findall(r'name="once" value="([^"]+)"', page.text)
    assert (await visitor.send(renaming, page, filename="notes/c.txt")).status_code == 303
    for _ in range(2):
        copying = renaming.replace("/rename", "/copy")
        assert (await visitor.send(copying, page, filename="notes/d.txt", once=once)).status_code == 303
    page = await visitor.open(f"{here}?prefix=notes/&sort=name")
    names = re.findall(r'class="open" href="[^"]+"><span class="theirs">([^<]+)<', page.text)
    assert names == ["notes/c.txt", "notes/d.txt"]
    publishing = renaming.replace("/rename", "/publishing")
    assert (await visitor.send(publishing, page, published="yes")).status_code == 303
    page = await visitor.open(f"{here}?name=NOTES")
    (address,) = re.findall(r'href="([^"]+)">permanent address', page.text)
    assert "/storage/published/" in address
    await visitor.send(publishing, page, published="no")
    page = await visitor.open(here)
    assert "permanent address</a>" not in page.text
    assert re.findall(r'<span class="theirs">(notes/)</span></a><span class="soft">2 files', page.text)
    boxes = re.findall(r'name="(file-[^"]+)"', page.text)
    assert len(boxes) == 3
    assert (await visitor.send(f"{here}/delete", page)).status_code == 400
    assert (await visitor.send(f"{here}/delete", page, **dict.fromkeys(boxes, "yes"))).status_code == 303
    assert "There is no file yet" in (await visitor.open(here)).text


async def test_a_file_that_does_not_fit_is_refused_in_words(visitor: Runner) -> None:
    here = f"/console/apps/{visitor.app_id}/files"
    page = await visitor.open(here)
    refusal = await visitor.send(f"{here}/announce", page, filename="a", type="", size=str(2**33))
    assert refusal.status_code == 413
    assert "the app takes files up to" in refusal.text
    assert (await visitor.send(f"{here}/announce", page, filename="a", type="", size="x")).status_code == 400


async def test_rules_of_who_may_read_keys_are_listed_added_and_deleted(visitor: Runner) -> None:
    path = f"/console/apps/{visitor.app_id}/kv"
    page = await visitor.open(path)
    assert "No rule yet" in page.text
    rule = {"pattern": "public:<b>:**", "read": "public", "write": "deny"}
    assert (await visitor.send(f"{path}/rules/add", page, **rule)).status_code == 303
    rule_page = await visitor.open(path)
    assert "read by anybody · written by no user" in rule_page.text
    assert "<b>" not in rule_page.text
    assert (await visitor.send(f"{path}/rules/add", page, **rule | {"read": "most"})).status_code == 400
    assert (await visitor.send(f"{path}/rules/delete", page, pattern=rule["pattern"])).status_code == 303
    assert "No rule yet" in (await visitor.open(path)).text
