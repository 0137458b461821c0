"""The log of changes, what rows were before them, and the counters that go with each write."""
