"""All measurements, each against its peer in the same run: `make bench`, or some: `make bench ARGS="rest mcp"`."""

import asyncio
import os
import signal
import sys

from tests.bench import (
    agents,
    auth,
    backends,
    bombs,
    capacity,
    console,
    data,
    data_peers,
    data_subscribers,
    gateway,
    half_cores,
    hidden_rows,
    jobs,
    kv_engine,
    mcp_endpoint,
    memory,
    rag,
    rest,
    rows,
    scale,
    stores,
    workers,
)

_SIDE_BY_SIDE = {
    "stores": stores,
    "rows": rows,
    "scale": scale,
    "workers": workers,
    "jobs": jobs,
    "agents": agents,
    "half-cores": half_cores,
    "capacity": capacity,
    "auth": auth,
}
"""What runs on all backends, on database servers that are started once for all of it."""


def main() -> None:  # noqa: PLR0912 - one for each kind of measurement
    # Told to stop, it stops the servers that it has started too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    alone = {"engine", "rest", "mcp", "gateway", "bombs", "console", "data", "memory", "rag", "leaks", "fairness"}
    chosen_names = set(sys.argv[1:]) or {*alone, *_SIDE_BY_SIDE}
    if "engine" in chosen_names:
        kv_engine.main()
    if "rest" in chosen_names:
        print("\n".join(rest.report(asyncio.run(rest.run()))))
    if "mcp" in chosen_names:
        print("\n".join(mcp_endpoint.report(asyncio.run(mcp_endpoint.run()))))
    if "gateway" in chosen_names:
        print("\n".join(gateway.report(asyncio.run(gateway.run()))))
    for name, measurement in (("bombs", bombs), ("memory", memory), ("rag", rag)):
        if name in chosen_names:
            print("\n".join(measurement.report(measurement.run())))
    for name, find, report in hidden_rows.MEASUREMENTS:
        if name in chosen_names:
            print("\n".join(report(asyncio.run(find()))))
    if "data" in chosen_names:
        print("\n".join(data.report(asyncio.run(data.run()))))
        print(data_subscribers.report(asyncio.run(data_subscribers.run())))
        with backends.start_servers() as servers:
            data_peers.main(servers)
    if "console" in chosen_names:
        print("\n".join(console.report(asyncio.run(console.run()))))
    if chosen_names & set(_SIDE_BY_SIDE):
        print(f"\nSide by side; {os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} at the start")
        with backends.start_servers() as servers:
            for name, measurement in _SIDE_BY_SIDE.items():
                if name in chosen_names:
                    for line in measurement.report(measurement.run(servers)):
                        print(line, flush=True)


if __name__ == "__main__":
    main()
