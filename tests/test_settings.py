"""Settings: what is wrong is told in one line that names the variable, and never shows a secret."""

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from baobab.cli import main
from baobab.server import export_environment
from baobab.settings import PREFIX, Settings, SettingsError, load_settings

SECRETS = {
    "BAOBAB_SECRET_KEY": "c2VjcmV0IHRoYXQgaXMgbm90IGxvbmcgZW5vdWdo",
    "BAOBAB_BOOTSTRAP_KEY": "bb_sk_tooshort123",
}
GOOD_KEY = base64.urlsafe_b64encode(bytes(range(32))).decode()


def catch_error(**variables: str) -> str:
    with pytest.raises(SettingsError) as error:
        load_settings({PREFIX + name.upper(): value for name, value in variables.items()})
    return str(error.value)


def test_without_any_variable_every_setting_has_a_value() -> None:
    settings = load_settings({})
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 8000, 1)
    assert settings.address == "http://127.0.0.1:8000"
    assert settings.rows_url == "sqlite:///data/baobab.db"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("port", "http", "integer"),
        ("port", "0", "greater than or equal to 1"),
        ("port", "70000", "less than or equal to 65535"),
        ("port", "", "integer"),
        ("workers", "0", "greater"),
        ("workers", "65", "less"),
        ("base_url", "shop.example", "http:// or https:// address"),
        ("base_url", "ftp://shop.example", "http:// or https:// address"),
        ("base_url", "https://", "http:// or https:// address"),
        ("database_url", "mysql://user:hunter2@db/baobab", "sqlite:///FILE or postgresql"),
        ("database_url", "postgresql://user:hunter2@[::1/baobab", "sqlite:///FILE or postgresql"),
        ("valkey_url", "localhost:6379", "must be redis://"),
        ("kv", "both", "'database' or 'valkey'"),
        ("kv", "valkey", "valkey_url"),
        ("objects_url", "ftp://bucket", "file:///FOLDER or s3://BUCKET/PREFIX"),
        ("secret_key", "short", "base64url texts of 32 bytes"),
        ("secret_key", GOOD_KEY + ",short", "base64url texts of 32 bytes"),
        ("secret_key", "!" * 44, "base64"),
        ("bootstrap_key", "bb_sk_short", "match pattern"),
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("access_log", "2", "less than or equal to 1"),
        ("region", "Mars 1", "match pattern"),
        ("plan", "gold", "must be one of playground, launch, certified, enterprise"),
        ("simulators", "yes", "'auto', 'on' or 'off'"),
        ("signup", "maybe", "'open' or 'closed'"),
        ("trusted_proxies", "10.0.0.0/8, proxy", "does not appear to be an IPv4 or IPv6 network"),
        ("egress_allow", "10.0.0.0/99", "does not appear to be an IPv4 or IPv6 network"),
        ("otel_url", "collector:4318", "http:// or https:// address"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_variable(variable: str, value: Any, words: str) -> None:
    message = catch_error(**{variable: value})
    assert message.startswith(f"BAOBAB_{variable.upper()}: ")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [
        ("BAOBAB_PROT", "BAOBAB_PORT"),
        ("BAOBAB_ALLOWED_HOST", "BAOBAB_ALLOWED_HOSTS"),
        ("BAOBAB_SECRETKEY", "BAOBAB_SECRET_KEY"),
    ],
)
def test_an_unknown_variable_is_an_error_that_suggests_the_one_that_was_meant(variable: str, suggestion: Any) -> None:
    with pytest.raises(SettingsError, match=f"^{variable} is not a setting; did you mean {suggestion}\\?$"):
        load_settings({variable: "1"})


def test_an_unknown_variable_that_is_like_none_gets_the_list() -> None:
    with pytest.raises(SettingsError) as error:
        load_settings({"BAOBAB_XYZZY": "1"})
    for name in Settings.model_fields:
        assert PREFIX + name.upper() in str(error.value)


@pytest.mark.parametrize("variable", ["baobab_port", "Baobab_Port", "BAOBAB_port"])
def test_a_variable_in_another_case_is_not_silently_ignored(variable: str) -> None:
    with pytest.raises(SettingsError, match="did you mean BAOBAB_PORT"):
        load_settings({variable: "1"})


def test_variables_of_other_programs_are_none_of_ours() -> None:
    assert load_settings({"PATH": "/bin", "PORT": "99", "MY_BAOBAB_PORT": "99"}).port == 8000


def test_only_the_environment_that_was_given_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAOBAB_PORT", "9999")
    assert load_settings({}).port == 8000
    assert load_settings().port == 9999


def test_what_the_command_line_gives_wins_and_what_it_leaves_out_does_not() -> None:
    assert load_settings({"BAOBAB_PORT": "9000"}, port=9001).port == 9001
    assert load_settings({"BAOBAB_PORT": "9000"}, port=None).port == 9000


def test_lists_are_words_between_commas() -> None:
    settings = load_settings(
        {"BAOBAB_ALLOWED_HOSTS": " a.example, b.example,,", "BAOBAB_TRUSTED_PROXIES": "10.0.0.1,fd00::/8"}
    )
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.trusted_proxies == ("10.0.0.1", "fd00::/8")


def test_files_have_a_domain_of_their_own_or_none() -> None:
    base = {"BAOBAB_BASE_URL": "https://api.example"}
    assert load_settings(base).files_domain == ""
    assert load_settings({**base, "BAOBAB_FILES_DOMAIN": "files.api.example"}).files_domain == "files.api.example"
    own = "media.example"
    for domain in ("api.example", f"https://{own}", f"*.{own}", f"{own}:80", ".example", "a_b"):
        with pytest.raises(SettingsError, match="BAOBAB_FILES_DOMAIN"):
            load_settings({**base, "BAOBAB_FILES_DOMAIN": domain})


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"BAOBAB_HOST": "::1", "BAOBAB_PORT": "9000"}, "http://[::1]:9000"),
        ({"BAOBAB_BASE_URL": "https://baobab.example/"}, "https://baobab.example"),
        ({"BAOBAB_BASE_URL": "https://baobab.example:8443"}, "https://baobab.example:8443"),
    ],
)
def test_the_address_is_the_base_url_or_the_host_and_port(variables: Any, address: Any) -> None:
    assert load_settings(variables).address == address


@pytest.mark.parametrize(
    ("variables", "are_on"),
    [
        ({}, True),
        ({"BAOBAB_HOST": "::1"}, True),
        ({"BAOBAB_HOST": "localhost"}, True),
        ({"BAOBAB_HOST": "::"}, False),
        ({"BAOBAB_HOST": "192.168.1.5"}, False),
        ({"BAOBAB_BASE_URL": "http://app.localhost:8000"}, True),
        ({"BAOBAB_BASE_URL": "https://baobab.example"}, False),
        ({"BAOBAB_BASE_URL": "https://localhost.example"}, False),
        ({"BAOBAB_BASE_URL": "https://baobab.example", "BAOBAB_SIMULATORS": "on"}, True),
        ({"BAOBAB_SIMULATORS": "off"}, False),
    ],
)
def test_simulators_answer_on_loopback_unless_the_operator_says_otherwise(variables: Any, are_on: bool) -> None:
    assert load_settings(variables).simulators_on is are_on


def test_several_secret_keys_are_taken_newest_first() -> None:
    assert load_settings({"BAOBAB_SECRET_KEY": f"{GOOD_KEY},{GOOD_KEY}"}).secret_key == f"{GOOD_KEY},{GOOD_KEY}"


@pytest.mark.parametrize("variable", SECRETS)
def test_the_refusal_of_a_secret_does_not_show_it(variable: str) -> None:
    with pytest.raises(SettingsError) as error:
        load_settings({variable: SECRETS[variable]})
    assert SECRETS[variable] not in str(error.value)


def test_the_password_of_a_database_is_not_shown() -> None:
    assert "hunter2" not in catch_error(database_url="mysql://user:hunter2@db/baobab")


def test_settings_that_are_printed_show_no_secret() -> None:
    key = "bb_sk_" + "T" * 40
    settings = load_settings(
        {"BAOBAB_SECRET_KEY": GOOD_KEY, "BAOBAB_BOOTSTRAP_KEY": key, "BAOBAB_METRICS_TOKEN": "scrape-me"}
    )
    for secret in (GOOD_KEY, key, "scrape-me"):
        assert secret not in repr(settings)
        assert secret not in str(settings)


def test_settings_do_not_change_once_they_are_read() -> None:
    settings: Any = load_settings({})
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_in_a_sentence_what_it_is(name: str) -> None:
    description = Settings.model_fields[name].description
    assert description
    assert description.endswith(".")
    assert len(description) <= 130


def test_every_setting_of_the_command_line_names_its_variable() -> None:
    text = CliRunner().invoke(main, ["serve", "--help"]).output
    for variable in re.findall(r"BAOBAB_\w+", text):
        assert variable.removeprefix(PREFIX).lower() in Settings.model_fields


def test_a_fault_ends_the_command_with_one_line_and_without_a_traceback() -> None:
    result = CliRunner().invoke(main, ["openapi"], env={"BAOBAB_PORT": "http"})
    assert result.exit_code == 1
    assert result.output.strip().splitlines() == [result.output.strip()]
    assert "BAOBAB_PORT" in result.output


def test_a_worker_process_reads_the_settings_that_its_parent_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = {
        "BAOBAB_ALLOWED_HOSTS": "a.example,b.example",
        "BAOBAB_ACCESS_LOG": "0.5",
        "BAOBAB_SECRET_KEY": GOOD_KEY,
        "BAOBAB_SIGNUP": "closed",
    }
    settings = load_settings(environment, data=tmp_path)
    for name in Settings.model_fields:
        monkeypatch.setenv(PREFIX + name.upper(), "")
    export_environment(settings)
    assert load_settings(os.environ) == settings
