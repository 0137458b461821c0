"""Measurements: ratios in one run, against a named peer. `make bench` runs them all."""

import os

# As servers have it: its threads wait for each other by spinning. Set before anything imports numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
