"""The thread for the built-in models' long work: each process has one, and callers take turns."""

from baobab.runtime.fair_thread_pool import FairThreadPool

# More threads would take the processors from requests that only wait for the network.
THREADS = FairThreadPool("the built-in models")
