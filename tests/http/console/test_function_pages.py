"""The pages of functions: code is deployed, tried, followed, compared and taken back there."""

import pytest

from baobab.tools.functions.invocations import InvocationLog
from tests.conftest import Baobab
from tests.http.console.test_console import HOSTILE, sign_in
from tests.http.console.test_returned_forms import find, find_form, send_from
from tests.http.console.test_runs import Runner

_FIRST = "export default (req, ctx) => { console.log('began'); return Response.json({version: 1}); }"
_SECOND = "export default (req, ctx) => { throw new Error('broken'); }"


async def test_the_hosts_that_a_function_reaches_are_named_and_freed_again(visitor: Runner) -> None:
    await deploy(visitor, _FIRST, "new-function", name="greet")
    path = find_path(visitor, "functions/greet")
    page = await visitor.open(path)
    assert "every public host" in page.text
    answer = await visitor.send(f"{path}/hosts", page, hosts="api.shop.example\r\n*.shop.example", every="")
    assert answer.status_code == 303, answer.text
    page = await visitor.open(path)
    assert '<code class="theirs">*.shop.example</code>' in page.text
    await visitor.send(f"{path}/hosts", page, every="true")
    assert "<dd>every public host" in (await visitor.open(path)).text


@pytest.fixture
async def visitor(baobab: Baobab) -> Runner:
    return Runner(baobab, await baobab.create_app(), await sign_in(baobab))


def find_path(visitor: Runner, rest: str = "functions") -> str:
    return f"/console/apps/{visitor.app_id}/{rest}"


async def deploy(visitor: Runner, code: str, path: str, **fields: str) -> None:
    page = await visitor.open(find_path(visitor, "new-function" if "name" in fields else f"{path}/edit"))
    answer = await visitor.send(find_path(visitor, f"{path}/deploy"), page, code=code, **fields)
    assert answer.status_code == 303, answer.text


async def settle(visitor: Runner) -> None:
    await visitor.baobab.application.services.of(InvocationLog).settle()


async def test_a_function_is_written_tried_changed_and_taken_back(visitor: Runner) -> None:
    assert "No function yet" in (await visitor.open(find_path(visitor))).text
    assert "export default" in (await visitor.open(find_path(visitor, "new-function"))).text
    await deploy(visitor, _FIRST, "new-function", name="greet", message="the first one")
    path = find_path(visitor, "functions/greet")
    page = await visitor.open(path)
    assert "the first one" in page.text
    assert "It was not called yet" in page.text
    answer = await visitor.send(f"{path}/try", page, body="{}", as_user="")
    assert "&#34;version&#34;: 1" in answer.text
    await settle(visitor)
    assert "began" in (await visitor.open(path)).text
    await deploy(visitor, _SECOND, "functions/greet")
    page = await visitor.open(path)
    assert ">500<" in (await visitor.send(f"{path}/try", page)).text
    await settle(visitor)
    failures = (await visitor.open(f"{path}?level=error")).text
    assert "broken" in failures
    assert "began" not in failures
    assert "failing" in (await visitor.open(find_path(visitor))).text
    version_page = await visitor.open(f"{path}/versions/1")
    assert "return Response.json({version: 1})" in version_page.text
    answer = await visitor.send(f"{path}/versions/1/rollback", version_page)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    page = await visitor.open(path)
    assert "&#34;version&#34;: 1" in (await visitor.send(f"{path}/try", page)).text


async def test_what_cannot_be_deployed_comes_back_with_the_line_that_is_wrong(visitor: Runner) -> None:
    editor = find_path(visitor, "new-function")
    code = "export default () => {\n  let = ;\n}"
    answer = await send_from(visitor, editor, f"{editor}/deploy", code=code, name="odd")
    assert answer.status_code == 400
    assert "line 2" in answer.text
    assert find(find_form(answer, f"{editor}/deploy"), "textarea").text().strip() == code
    assert "No function yet" in (await visitor.open(find_path(visitor))).text


async def test_variables_are_set_and_removed_and_their_values_never_shown(visitor: Runner) -> None:
    await deploy(visitor, _FIRST, "new-function", name="greet")
    for rest in ("functions", "functions/greet"):
        path = find_path(visitor, rest)
        page = await visitor.open(path)
        await visitor.send(f"{path}/env", page, variable="TOKEN", value="sesame-7")
        page = await visitor.open(path)
        assert "TOKEN" in page.text
        assert "sesame-7" not in page.text
        await visitor.send(f"{path}/env", page, variable="TOKEN", value="")
        assert "TOKEN" not in (await visitor.open(path)).text


async def test_a_function_is_deleted(visitor: Runner) -> None:
    await deploy(visitor, _FIRST, "new-function", name="greet")
    path = find_path(visitor, "functions/greet")
    answer = await visitor.send(f"{path}/delete", await visitor.open(path))
    assert answer.headers["location"] == find_path(visitor)
    assert "No function yet" in (await visitor.open(find_path(visitor))).text


async def test_what_a_function_prints_and_answers_stays_text(visitor: Runner) -> None:
    code = f"export default () => {{ console.log({HOSTILE!r}); throw new Error({HOSTILE!r}); }}"
    await deploy(visitor, code, "new-function", name="greet", message=HOSTILE)
    path = find_path(visitor, "functions/greet")
    answer = await visitor.send(f"{path}/try", await visitor.open(path))
    await settle(visitor)
    for html in (answer.text, (await visitor.open(path)).text, (await visitor.open(f"{path}/edit")).text):
        assert "<script>alert" not in html
        assert "<img" not in html
