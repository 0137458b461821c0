"""Attention rules: on a schedule, a rule looks at the substrate and proposes actions."""
