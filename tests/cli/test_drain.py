"""A server that is told to stop says so before its port closes."""

import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, run_server


@pytest.mark.parametrize("workers", [1, 2])
def test_after_sigterm_readiness_says_draining_while_requests_are_still_answered(tmp_path: Path, workers: int) -> None:
    with run_server(tmp_path / "data", "--workers", workers, settings={"BAOBAB_DRAIN_SECONDS": "8"}) as server:
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (ready := httpx.get(f"{server.address}/health/ready", timeout=TIMEOUT_SECONDS)).status_code == 200:
            assert time.monotonic() < deadline
        assert (ready.status_code, ready.json()["status"]) == (503, "draining")
        owner = {"authorization": f"Bearer {server.key}"}
        assert httpx.get(f"{server.address}/apps", headers=owner, timeout=TIMEOUT_SECONDS).status_code == 200
        assert server.process.wait(TIMEOUT_SECONDS) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.address}/health", timeout=TIMEOUT_SECONDS)


def test_a_second_sigterm_ends_the_wait(tmp_path: Path) -> None:
    with run_server(tmp_path / "data", settings={"BAOBAB_DRAIN_SECONDS": "600"}) as server:
        server.process.send_signal(signal.SIGTERM)
        while httpx.get(f"{server.address}/health/ready", timeout=TIMEOUT_SECONDS).status_code == 200:
            pass
        assert server.terminate() == 0
