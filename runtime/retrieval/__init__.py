"""Computations of retrieval that know no tool's rules: chunks of a text, combined rankings, measures of quality."""
