"""The WebSocket protocol of the server. What clients send is short, so an incoming message may have few bytes."""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MOST_BYTES = 8192
"""The most bytes of an incoming message, whole or in fragments; a larger one closes the socket with 1009."""


class QuietSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol, but a text that is not UTF-8 closes the socket with 1007 instead of logging an
    error of ours.
    """

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
            # Refused before the handshake, which uvicorn would otherwise report as a missing answer.
            self.handshake_complete = True
