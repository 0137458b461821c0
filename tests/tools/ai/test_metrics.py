"""The series of /metrics about calls to models."""

from pathlib import Path

from tests.tools.ai.conftest import MINI, Installation, open_installation

MINI_LABELS = f'{{model="{MINI}",payer="platform"'


async def read_metrics(world: Installation) -> dict[str, float]:
    await world.get_settled_balance()
    text = (await world.client.get("/metrics", headers={"authorization": "Bearer metrics"})).text
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith("baobab_model")]
    return {name: float(value) for name, _, value in lines}


async def test_models_are_counted_by_name_and_by_who_pays(tmp_path: Path, settings: dict[str, str]) -> None:
    variables = {**settings, "BAOBAB_PLAN": "enterprise", "BAOBAB_METRICS_TOKEN": "metrics"}
    variables["BAOBAB_EGRESS_ALLOW"] = "127.0.0.0/8"
    async with open_installation(tmp_path / "data", variables) as world:
        await world.chat()
        await world.chat(stream=True)
        failing = world.add_model("500")
        await world.chat(failing)
        server = {"name": "mine", "url": f"{world.fake.url}/v1"}
        await world.client.post("/v1/ai/servers", json=server, headers=world.owner)
        for model in ("mine/one", "mine/two"):
            assert (await world.chat(model)).status_code == 200
        metrics = await read_metrics(world)
    assert metrics[f"baobab_model_seconds_count{MINI_LABELS}}}"] == 2
    assert metrics[f'baobab_model_tokens_total{{kind="prompt",model="{MINI}",payer="platform"}}'] == 22
    assert metrics[f'baobab_model_tokens_total{{kind="completion",model="{MINI}",payer="platform"}}'] == 14
    assert round(metrics[f"baobab_model_cost_usd_total{MINI_LABELS}}}"] * 10**9) == 2 * (11 * 150 + 7 * 600)
    assert metrics[f'baobab_model_failures_total{{code="upstream_error",model="{failing}",payer="platform"}}'] == 1
    # A customer gives its servers and their models whatever names it likes.
    assert metrics['baobab_model_seconds_count{model="*",payer="own_server"}'] == 2
    assert not [name for name in metrics if "mine" in name]
