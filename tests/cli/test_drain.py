"""A server that is told to stop says so before its port closes."""

import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.server_process import PATIENCE, serving


@pytest.mark.parametrize("workers", [1, 2])
def test_after_sigterm_readiness_says_draining_while_requests_are_still_answered(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path / "data", "--workers", workers, settings={"BAOBAB_DRAIN_SECONDS": "3"}) as server:
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while (ready := httpx.get(f"{server.address}/health/ready", timeout=PATIENCE)).status_code == 200:
            assert time.monotonic() < deadline
        assert (ready.status_code, ready.json()["status"]) == (503, "draining")
        owner = {"authorization": f"Bearer {server.key}"}
        assert httpx.get(f"{server.address}/apps", headers=owner, timeout=PATIENCE).status_code == 200
        assert server.process.wait(PATIENCE) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.address}/health", timeout=PATIENCE)


def test_a_second_sigterm_ends_the_wait(tmp_path: Path) -> None:
    with serving(tmp_path / "data", settings={"BAOBAB_DRAIN_SECONDS": "600"}) as server:
        server.process.send_signal(signal.SIGTERM)
        while httpx.get(f"{server.address}/health/ready", timeout=PATIENCE).status_code == 200:
            pass
        assert server.terminate() == 0
