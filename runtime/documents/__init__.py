"""Documents that strangers wrote: their text, read in a child process that can reach nothing and use only so much."""
