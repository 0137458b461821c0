"""The wire formats other than OpenAI's chat completions: their requests and their answers."""
