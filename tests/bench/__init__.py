"""Measurements: ratios in one run, against a named peer. `make bench` runs them all."""
