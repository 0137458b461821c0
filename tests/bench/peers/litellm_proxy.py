"""LiteLLM's own proxy, as its page on production has it: one worker, one model, a master key, no database.

So it keeps no accounts, no limits and no record of what was spent; what it costs is LiteLLM alone.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

_SET_UP = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000",
    "DISABLE_ADMIN_UI": "True",
}


def main(upstream: str, port: str, key: str) -> None:
    os.environ.update(_SET_UP)
    model_params = {"model": "openai/gpt-4o-mini", "api_base": f"{upstream}/v1", "api_key": "sk-bench"}
    settings = {
        "model_list": [{"model_name": "openai/gpt-4o-mini", "litellm_params": model_params}],
        "litellm_settings": {"num_retries": 0, "telemetry": False},
        "general_settings": {"master_key": key, "disable_spend_logs": True},
    }
    with tempfile.TemporaryDirectory() as folder:
        # JSON is YAML.
        path = Path(folder) / "config.yaml"
        path.write_text(json.dumps(settings))
        from litellm.proxy.proxy_cli import run_server

        arguments = [
            "--config",
            str(path),
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--num_workers",
            "1",
            "--telemetry",
            "False",
        ]
        run_server(arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
