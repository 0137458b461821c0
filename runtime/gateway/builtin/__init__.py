"""The models that are part of Baobab. They need no provider, key or network, and cost nothing."""
