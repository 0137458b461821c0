"""The tools of the substrate."""
