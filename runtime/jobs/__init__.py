"""Durable jobs: the queue as rows, and the runners that take them."""
