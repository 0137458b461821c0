"""What retrieval computes, without rules of a tool: chunks of a text, rankings put together, measures of quality."""
