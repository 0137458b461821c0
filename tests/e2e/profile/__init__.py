"""The profile: our server with what the conformance suite asks of any server, for its run and nothing else."""
