"""Media: the smallest picture and the smallest sound."""

import mcp_types as types

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

PICTURE = types.ImageContent(data=PNG, mime_type="image/png")
SOUND = types.AudioContent(data=WAV, mime_type="audio/wav")


def embed_text(uri: str, text: str, mime_type: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text, mime_type=mime_type))
