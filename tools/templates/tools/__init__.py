"""The tools of templates and clones."""
