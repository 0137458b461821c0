"""The protocol of WebSockets: they send events and take nothing in, so a few bytes are the most that a message has."""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MOST_BYTES = 1024
"""Of a message, whole or in fragments; 1009 for more."""


class QuietSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's, for which a text that is no UTF-8 is the client's fault and no error of ours: 1007 without a trace."""

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # Refused before it was accepted: uvicorn would take that for an answer that was forgotten.
            self.handshake_complete = True
