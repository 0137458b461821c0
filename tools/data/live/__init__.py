"""Changes of rows as they happen, presence and broadcasts, over streams and WebSockets."""
