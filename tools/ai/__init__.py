"""Models: chat, embeddings, the catalogue, an app's settings for them and what they used."""
