"""All measurements, each against its peer in the same run: `make bench`."""

import asyncio
import sys

from tests.bench import kv_engine, mcp_door, rest


def main() -> None:
    chosen = set(sys.argv[1:]) or {"engine", "rest", "mcp"}
    if "engine" in chosen:
        kv_engine.main()
    if "rest" in chosen:
        print("\n".join(rest.report(asyncio.run(rest.run()))))
    if "mcp" in chosen:
        print("\n".join(mcp_door.report(asyncio.run(mcp_door.run()))))


if __name__ == "__main__":
    main()
