"""The installation itself: health, regions, guidance for language models."""
