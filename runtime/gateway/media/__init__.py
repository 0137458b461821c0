"""Images and videos: jobs at providers, and the built-in models that make both without a key."""
