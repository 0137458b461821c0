"""Other wires than OpenAI's chat completions: how models are asked by them, and how their answers are told."""
