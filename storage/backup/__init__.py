"""A data folder, copied while servers work on it, and put back."""
