"""Credits: what organisations, keys and agents may spend, and what they have spent."""
