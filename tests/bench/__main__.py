"""All measurements, each against its peer in the same run: `make bench`, or some: `make bench ARGS="rest mcp"`.

With `--write`, the figures are written into docs/speed.md too, each section's in its place.
"""

import os
import signal
import sys

from tests.bench.pages import write_figures
from tests.bench.sections import UnknownSectionError, measure
from tests.bench.size import SMOKE


def main() -> None:
    # Told to stop, it stops the servers that it has started too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = {argument for argument in sys.argv[1:] if argument.startswith("--")}
    if options - {"--write", SMOKE}:
        sys.exit(f"the only options are --write and {SMOKE}")
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} at the start")
    lines: dict[str, list[str]] = {}
    try:
        for name, line in measure(set(sys.argv[1:]) - options):
            print(line, flush=True)
            lines.setdefault(name, []).append(line)
    except UnknownSectionError as error:
        sys.exit(str(error))
    if "--write" in options:
        write_figures(lines)


if __name__ == "__main__":
    main()
