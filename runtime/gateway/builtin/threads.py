"""The thread in which the built-in models do what takes long: one for a process, and callers take turns."""

from baobab.runtime.fair_thread_pool import FairThreadPool

# More threads would take the processors from those who only wait for the network.
THREADS = FairThreadPool("the built-in models")
