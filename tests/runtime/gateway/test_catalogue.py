"""Which models are sold, what they are called and what they cost: on the price map that is installed, and on small
ones made by hand where the point is one entry."""

import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from baobab.runtime.gateway.catalogue import Catalogue
from baobab.runtime.gateway.model import Model, Price
from tests.clock import FixedClock

TODAY = FixedClock(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp())
INSTALLED = Catalogue(TODAY)


def build_entry(provider: str = "openai", **fields: Any) -> dict[str, Any]:
    prices = {"input_cost_per_token": "1e-06", "output_cost_per_token": "2e-06"}
    return {"litellm_provider": provider, "mode": "chat", **prices, **fields}


def build_catalogue(entries: Mapping[str, Mapping[str, Any]], *providers: str, clock: FixedClock = TODAY) -> Catalogue:
    return Catalogue(clock, providers or None, lambda: entries)


def list_ids(catalogue: Catalogue) -> list[str]:
    return [model.id for model in catalogue.list_models()]


def find_model(catalogue: Catalogue, name: str) -> Model:
    model = catalogue.find_model(name)
    assert model is not None, name
    return model


def build_model(id_: str) -> Model:
    return Model(id_, id_, "chat", Price(0, 0), None, None, f"openai/{id_}", "corp", frozenset(["local"]))


# What is called how


@pytest.mark.parametrize(
    ("id_", "provider", "litellm"),
    [
        ("openai/gpt-4o-mini", "openai", "openai/gpt-4o-mini"),
        ("openai/text-embedding-3-small", "openai", "openai/text-embedding-3-small"),
        ("openai/gpt-image-2", "openai", "openai/gpt-image-2"),
        ("google/gemini-2.5-pro", "gemini", "gemini/gemini-2.5-pro"),
        ("anthropic/claude-sonnet-5", "anthropic", "anthropic/claude-sonnet-5"),
        ("mistralai/mistral-large-latest", "mistral", "mistral/mistral-large-latest"),
    ],
)
def test_a_vendors_model_is_its_own_and_asked_of_the_vendor(id_: str, provider: str, litellm: str) -> None:
    model = find_model(INSTALLED, id_)

    assert (model.id, model.provider, model.litellm) == (id_, provider, litellm)


@pytest.mark.parametrize("vendor", ["anthropic", "openai", "google", "meta-llama", "deepseek", "qwen", "x-ai"])
def test_every_large_vendor_has_models_to_chat_with(vendor: str) -> None:
    assert [model for model in INSTALLED.list_models("chat") if model.id.startswith(vendor + "/")]


@pytest.mark.parametrize("family", ["bytedance/seedance-", "google/veo-"])
def test_videos_of_the_documented_families_are_sold_by_the_second(family: str) -> None:
    models = [model for model in INSTALLED.list_models("video") if model.id.startswith(family)]

    assert models
    assert all(model.price.unit and not model.price.completion for model in models)


def test_every_id_is_a_vendor_and_a_model_and_listed_once() -> None:
    ids = list_ids(INSTALLED)

    assert len(ids) == len(set(ids)) > 300
    assert all(id_ == id_.lower() and id_.count("/") == 1 for id_ in ids)


def test_every_model_says_who_calls_it_and_how() -> None:
    for listed_model in INSTALLED.list_models():
        for model in INSTALLED.list_deployments(listed_model.id):
            assert model.litellm == f"{model.provider}/{model.upstream_name}"
            assert model.upstream_name


@pytest.mark.parametrize(
    "name",
    ["gpt-4o-mini", "GPT-4o-mini", "openai/GPT-4o-mini", "openai/gpt-4o-mini"],
)
def test_a_model_is_found_by_the_name_its_vendor_gives_it(name: str) -> None:
    assert find_model(INSTALLED, name).id == "openai/gpt-4o-mini"


def test_a_model_is_found_by_litellms_name_of_it() -> None:
    assert find_model(INSTALLED, "gemini/gemini-2.5-pro").id == "google/gemini-2.5-pro"


def test_a_version_may_be_written_with_dots_or_dashes() -> None:
    catalogue = build_catalogue({"claude-x-4-5": build_entry("anthropic")})

    assert find_model(catalogue, "anthropic/claude-x-4.5") == find_model(catalogue, "claude-x-4-5")


def test_a_name_that_two_models_have_finds_neither() -> None:
    catalogue = build_catalogue({"gpt-9": build_entry(), "xai/gpt-9": build_entry("xai")})

    assert catalogue.find_model("gpt-9") is None
    assert find_model(catalogue, "x-ai/gpt-9").provider == "xai"


def test_an_unknown_name_finds_nothing() -> None:
    assert INSTALLED.find_model("openai/gpt-0") is None
    assert INSTALLED.list_deployments("openai/gpt-0") == ()


def test_fine_tunes_and_sizes_of_images_are_not_models() -> None:
    assert list_ids(
        build_catalogue(
            {"ft:gpt-9": build_entry(), "low/1024-x-1024/gpt-image-9": build_entry(), "gpt-9": build_entry()}
        )
    ) == ["openai/gpt-9"]


def test_the_models_of_resellers_are_not_listed() -> None:
    resold = {
        "azure/gpt-9": build_entry("azure"),
        "bedrock/anthropic.claude-9": build_entry("bedrock"),
        "vertex_ai/gemini-9": build_entry("vertex_ai-language-models"),
        "deepinfra/anthropic/claude-9": build_entry("deepinfra"),
        "dashscope/deepseek-v9": build_entry("dashscope"),
    }

    assert list_ids(build_catalogue(resold)) == []


# Who serves it


OPEN = {
    "novita/meta-llama/llama-9-70b-instruct": build_entry("novita", input_cost_per_token="3e-06"),
    "together_ai/meta-llama/Meta-Llama-9-70B-Instruct-Turbo": build_entry("together_ai", input_cost_per_token="2e-06"),
    "fireworks_ai/accounts/fireworks/models/llama-v9-70b-instruct": build_entry("fireworks_ai"),
    "groq/llama-9-70b-instruct": build_entry("groq", input_cost_per_token="4e-06"),
}


def test_the_spellings_of_hosts_are_one_model() -> None:
    catalogue = build_catalogue(OPEN)

    assert list_ids(catalogue) == ["meta-llama/llama-9-70b-instruct"]
    assert [model.provider for model in catalogue.list_deployments("meta-llama/llama-9-70b-instruct")] == [
        "groq",
        "together_ai",
        "fireworks_ai",
        "novita",
    ]


def test_the_first_host_that_can_be_called_serves_at_its_own_price() -> None:
    model = find_model(build_catalogue(OPEN, "novita", "together_ai"), "meta-llama/llama-9-70b-instruct")

    assert model.litellm == "together_ai/meta-llama/Meta-Llama-9-70B-Instruct-Turbo"
    assert model.price.prompt == 2_000_000_000


def test_a_vendor_comes_before_the_hosts_of_its_model() -> None:
    both = {"novita/deepseek/deepseek-v9": build_entry("novita"), "deepseek/deepseek-v9": build_entry("deepseek")}

    assert find_model(build_catalogue(both), "deepseek/deepseek-v9").provider == "deepseek"


def test_only_models_that_can_be_called_are_listed() -> None:
    assert list_ids(build_catalogue({"gpt-9": build_entry(), "claude-9": build_entry("anthropic")}, "anthropic")) == [
        "anthropic/claude-9"
    ]


def test_without_providers_nothing_is_listed() -> None:
    assert Catalogue(TODAY, providers=()).list_models() == ()


def test_what_a_server_offers_is_listed_in_place_of_what_it_offered_before() -> None:
    catalogue = build_catalogue({"gpt-9": build_entry()})

    catalogue.register_models("corp", [build_model("corp/one"), build_model("corp/two")])
    catalogue.register_models("corp", [build_model("corp/two")])

    assert list_ids(catalogue) == ["corp/two", "openai/gpt-9"]
    assert find_model(catalogue, "two").provider == "corp"


def test_a_server_cannot_take_the_name_of_a_vendors_model() -> None:
    catalogue = build_catalogue({"gpt-9": build_entry()})

    catalogue.register_models("corp", [build_model("corp/gpt-9"), build_model("openai/gpt-9")])

    assert find_model(catalogue, "gpt-9").provider == find_model(catalogue, "openai/gpt-9").provider == "openai"


# What it costs


def test_prices_are_exact() -> None:
    assert find_model(INSTALLED, "openai/gpt-4o-mini").price == Price(150_000_000, 600_000_000, cached=75_000_000)
    assert find_model(INSTALLED, "openai/text-embedding-3-small").price == Price(20_000_000, 0)


@pytest.mark.parametrize(
    ("dollars", "nanos"),
    [("1.5e-07", 150_000_000), ("2.9999999999999997e-07", 300_000_000), ("0.000003", 3_000_000_000), ("1e-15", 1)],
)
def test_a_price_is_whole_nano_dollars_for_a_million_tokens(dollars: str, nanos: int) -> None:
    assert (
        find_model(build_catalogue({"gpt-9": build_entry(input_cost_per_token=dollars)}), "openai/gpt-9").price.prompt
        == nanos
    )


def test_everything_in_the_installed_map_costs_something() -> None:
    for model in INSTALLED.list_models():
        price = model.price
        assert price.prompt > 0 or price.unit, model.id
        assert model.modality != "chat" or price.completion > 0, model.id


@pytest.mark.parametrize(
    "fields",
    [
        {"input_cost_per_token": "0.0", "output_cost_per_token": "0.0"},
        {"output_cost_per_token": "0.0"},
        {"input_cost_per_token": None},
        {"input_cost_per_token": "-1e-06"},
        {"input_cost_per_token": "cheap"},
        {"input_cost_per_token": "1e999999"},
        {"input_cost_per_request": "0.005"},
        {"output_cost_per_reasoning_token": "9e-06"},
        {"supported_output_modalities": ["text", "audio"]},
        {"mode": "audio_speech"},
    ],
)
def test_what_has_no_price_or_one_that_cannot_be_charged_is_not_sold(fields: dict[str, Any]) -> None:
    assert list_ids(build_catalogue({"gpt-9": build_entry(**fields)})) == []


def test_an_image_is_sold_by_the_image_or_by_its_tokens() -> None:
    catalogue = build_catalogue(
        {
            "gpt-image-9": build_entry(mode="image_generation", output_cost_per_image_token="3e-05"),
            "recraft/recraftv9": {
                "litellm_provider": "recraft",
                "mode": "image_generation",
                "output_cost_per_image": "0.04",
            },
        }
    )

    assert find_model(catalogue, "openai/gpt-image-9").price == Price(1_000_000_000, 30_000_000_000)
    assert find_model(catalogue, "recraft/recraftv9").price == Price(0, 0, unit=40_000_000)


def test_writing_to_a_cache_has_its_own_price_where_there_is_one() -> None:
    arguments = {
        "cache_creation_input_token_cost": "1.25e-06",
        "cache_creation_input_token_cost_above_1hr": "2e-06",
        "cache_creation_input_token_cost_above_200k_tokens": "2.5e-06",
    }
    catalogue = build_catalogue(
        {"gpt-9": build_entry(**arguments), "gpt-8": build_entry(cache_creation_input_token_cost="0")}
    )

    dear, plain = find_model(catalogue, "openai/gpt-9"), find_model(catalogue, "openai/gpt-8")

    assert (dear.price.cache_write, dear.price.cache_write_hour) == (1_250_000_000, 2_000_000_000)
    assert catalogue.get_price(dear, prompt_tokens=200_001).cache_write == 2_500_000_000
    # A price of nought is none: it costs what the prompt does.
    assert (plain.price.cache_write, plain.price.cache_write_hour) == (None, None)


LONG = build_entry(
    input_cost_per_token_above_200k_tokens="3e-06",
    output_cost_per_token_above_200k_tokens="4e-06",
    input_cost_per_token_above_200k_tokens_priority="9e-06",
)
BRACKETS = {
    "litellm_provider": "openai",
    "mode": "chat",
    "tiered_pricing": [
        {"range": ["200000.0", 900000], "input_cost_per_token": "3e-06", "output_cost_per_token": "4e-06"},
        {"range": [0, "200000.0"], "input_cost_per_token": "1e-06", "output_cost_per_token": "2e-06"},
    ],
}


@pytest.mark.parametrize("entry", [LONG, BRACKETS])
@pytest.mark.parametrize(
    ("tokens", "prompt", "completion"), [(0, 1, 2), (200_000, 1, 2), (200_001, 3, 4), (10**6, 3, 4)]
)
def test_a_long_prompt_makes_the_whole_call_dearer(
    entry: dict[str, Any], tokens: int, prompt: int, completion: int
) -> None:
    catalogue = build_catalogue({"gpt-9": entry})

    price = catalogue.get_price(find_model(catalogue, "openai/gpt-9"), prompt_tokens=tokens)

    assert (price.prompt, price.completion) == (prompt * 10**9, completion * 10**9)


@pytest.mark.parametrize(
    ("nanos", "percent", "marked_up"),
    [(100, 20, 120), (5, 10, 6), (4, 10, 4), (1, 49, 1), (1, 50, 2), (7, 0, 7), (10**18 + 1, 200, 3 * 10**18 + 3)],
)
def test_a_markup_is_rounded_half_up(nanos: int, percent: int, marked_up: int) -> None:
    assert Price(*[nanos] * 6).marked_up(percent) == Price(*[marked_up] * 6)


@pytest.mark.parametrize(("percent", "held_to"), [(-1, 0), (201, 200)])
def test_a_markup_is_held_to_its_bounds(percent: int, held_to: int) -> None:
    assert Price(1000, 0).marked_up(percent) == Price(1000, 0).marked_up(held_to)


# What else is known of it


def test_a_model_says_what_it_can_and_how_much_it_reads() -> None:
    model = find_model(INSTALLED, "openai/gpt-4o-mini")

    assert model.features >= {"tools", "vision", "json_schema", "streaming"}
    assert (model.context_window, model.max_output) == (128_000, 16_384)
    assert model.name == "OpenAI: gpt-4o-mini"


@pytest.mark.parametrize("fields", [{"mode": "responses"}, {"supported_endpoints": ["/v1/responses"]}])
def test_a_model_without_chat_completions_at_its_vendor_says_so(fields: dict[str, Any]) -> None:
    model = find_model(build_catalogue({"gpt-9": build_entry(**fields)}), "openai/gpt-9")

    assert model.modality == "chat"
    assert "responses_only" in model.features


def test_a_model_is_gone_on_the_day_after_its_deprecation_date() -> None:
    clock = FixedClock(datetime(2026, 3, 31, 23, 59, tzinfo=UTC).timestamp())
    catalogue = build_catalogue({"gpt-9": build_entry(deprecation_date="2026-03-31")}, clock=clock)
    assert list_ids(catalogue) == ["openai/gpt-9"]

    clock.advance(60)

    assert list_ids(catalogue) == []
    assert catalogue.find_model("gpt-9") is None


def test_another_host_serves_when_the_first_gives_a_model_up() -> None:
    catalogue = build_catalogue(
        {**OPEN, "groq/llama-9-70b-instruct": build_entry("groq", deprecation_date="2026-01-01")}
    )

    assert find_model(catalogue, "meta-llama/llama-9-70b-instruct").provider == "together_ai"


def test_nothing_is_read_before_the_first_question() -> None:
    def unread() -> Mapping[str, Mapping[str, Any]]:
        raise AssertionError("read")

    Catalogue(TODAY, source=unread).register_models("corp", [])


def test_the_price_map_is_read_without_importing_litellm() -> None:
    code = (
        "import sys; from baobab.runtime.gateway.catalogue import load_price_map; "
        "assert 'gpt-4o-mini' in load_price_map(); assert 'litellm' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
