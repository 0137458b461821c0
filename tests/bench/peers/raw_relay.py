"""The least that a relay can do: bytes in, bytes out, by aiohttp on both sides. It knows nobody and counts nothing."""

import sys
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web

_UPSTREAM = web.AppKey("upstream", str)
_SESSION = web.AppKey("session", aiohttp.ClientSession)


async def _open_session(app: web.Application) -> AsyncIterator[None]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as app[_SESSION]:
        yield


async def _forward(request: web.Request) -> web.StreamResponse:
    headers = {"content-type": "application/json", "authorization": "Bearer sk-bench"}
    upstream_request = request.app[_SESSION].post(
        request.app[_UPSTREAM] + request.path, data=await request.read(), headers=headers
    )
    async with upstream_request as answer:
        kind = {"content-type": answer.headers["content-type"]}
        if answer.content_length is not None:
            return web.Response(body=await answer.read(), headers=kind, status=answer.status)
        response = web.StreamResponse(headers=kind, status=answer.status)
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
        return response


def _build_application(upstream: str) -> web.Application:
    app = web.Application()
    app[_UPSTREAM] = upstream
    app.cleanup_ctx.append(_open_session)
    app.router.add_post("/v1/chat/completions", _forward)
    return app


if __name__ == "__main__":
    application = _build_application(sys.argv[1])
    web.run_app(
        application, host="127.0.0.1", port=int(sys.argv[2]), access_log=None, print=None, loop=uvloop.new_event_loop()
    )
