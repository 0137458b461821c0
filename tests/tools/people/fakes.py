"""Providers of people on loopback, as their public documents describe them, which do as a test tells them.

Enrich Layer is below `/api/v2` and takes the key `el-key`; Exa takes `exa-key`. `fake.refusals` are answers to the
next requests: a status with its body and headers, or `hang_up`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

ENRICH_KEY, EXA_KEY = "el-key", "exa-key"
NETWORK = "https://www.linkedin.com"
HANG_UP = 0
"""A status that stands for a connection which ends without an answer."""


def describe_person(number: int) -> dict[str, Any]:
    return {
        "public_identifier": f"person-{number}",
        "first_name": "Person",
        "last_name": str(number),
        "full_name": f"Person {number}",
        "headline": "Engineer at Acme",
        "occupation": "Engineer at Acme",
        "summary": "Builds things.",
        "city": "Berlin",
        "state": "Berlin",
        "country": "DE",
        "country_full_name": "Germany",
        "experiences": [
            {
                "title": "Engineer",
                "company": "Acme",
                "location": "Berlin",
                "starts_at": {"day": 1, "month": 3, "year": 2022},
                "ends_at": None,
            }
        ],
        "education": [
            {
                "school": "TU Berlin",
                "degree_name": "MSc",
                "field_of_study": "Physics",
                "school_linkedin_profile_url": f"{NETWORK}/school/tu-berlin",
                "starts_at": {"day": None, "month": None, "year": 2014},
                "ends_at": {"day": None, "month": None, "year": 2018},
            }
        ],
        "skills": ["Physics"],
        "languages": ["German"],
        "profile_pic_url": "https://media.example/1.jpg",
        "people_also_viewed": [],
    }


@dataclass
class Fake:
    """requests: what was asked, oldest first: path, query, body, headers."""

    url: str = ""
    people: int = 25
    refusals: list[tuple[int, Any, dict[str, str]]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    callbacks: list[str] = field(default_factory=list)
    slow: asyncio.Event = field(default_factory=asyncio.Event)
    """No answer is sent before it is set."""
    arrival: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        query = dict(request.query)
        self.requests.append({"path": request.path, "query": query, "body": body, "headers": dict(request.headers)})
        self.arrival.set()
        await self.slow.wait()
        if self.refusals:
            status, refusal, headers = self.refusals.pop(0)
            if status == HANG_UP:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return web.json_response(refusal, status=status, headers=headers)
        if request.path.startswith("/api/v2"):
            return self._answer_enrich_layer(request, query)
        return self._answer_exa(request, body)

    def _answer_enrich_layer(self, request: web.BaseRequest, query: dict[str, str]) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {ENRICH_KEY}":
            return web.json_response(
                {"code": 401, "description": "Invalid API Key", "name": "Unauthorized"}, status=401
            )
        refusal = {"code": 404, "description": "Person profile does not exist", "name": "Not Found"}
        if "nobody" in query.get("profile_url", ""):
            return web.json_response(refusal, status=404)
        answers = {
            "/search/person": self._search_people,
            "/search/company": self._search_companies,
            "/profile": lambda _: describe_person(1),
            "/profile/email": self._queue_email,
        }
        return web.json_response(answers[request.path.removeprefix("/api/v2")](query))

    def _queue_email(self, query: dict[str, str]) -> dict[str, Any]:
        self.callbacks.append(query["callback_url"])
        return {"email_queue_count": 0}

    def _search_people(self, query: dict[str, str]) -> dict[str, Any]:
        begin, size = int(query.get("next_token", "0")), int(query["page_size"])
        results = [
            {
                "linkedin_profile_url": f"{NETWORK}/in/person-{number}",
                "profile": describe_person(number) if query["enrich_profiles"] == "enrich" else None,
                "last_updated": "2026-05-01T00:00:00Z",
            }
            for number in range(begin, min(begin + size, self.people))
        ]
        end = begin + size
        page = f"{self.url}/api/v2/search/person?country=DE&page_size={size}&next_token={end}"
        return {
            "results": results,
            "next_page": page if end < self.people else None,
            "total_result_count": self.people,
        }

    def _search_companies(self, query: dict[str, str]) -> dict[str, Any]:
        profile = {
            "name": "Acme",
            "industry": "Software",
            "hq": {"country": "DE", "city": "Berlin"},
            "company_size": [51, 200],
            "company_size_on_linkedin": 120,
        }
        result = {"linkedin_profile_url": f"{NETWORK}/company/acme", "profile": profile, "last_updated": None}
        return {"results": [result], "next_page": None, "total_result_count": 1}

    def _answer_exa(self, request: web.BaseRequest, body: Any) -> web.Response:
        if request.headers.get("x-api-key") != EXA_KEY:
            refusal = {"requestId": "1", "error": "Invalid API key", "tag": "INVALID_API_KEY"}
            return web.json_response(refusal, status=401)
        base = {"requestId": "b5947044c4b78efa9552a7c89b306d95", "costDollars": {"total": 0.007}}
        if request.path == "/contents":
            url = body["urls"][0]
            if "nobody" in url:
                failure = {"id": url, "status": "error", "error": {"tag": "CRAWL_NOT_FOUND", "httpStatusCode": 404}}
                return web.json_response({**base, "results": [], "statuses": [failure]})
            statuses = [{"id": url, "status": "success", "source": "cached"}]
            return web.json_response({**base, "results": [self._exa_person(1, url)], "statuses": statuses})
        count = min(body["numResults"], self.people)
        if body["category"] == "company":
            return web.json_response({**base, "resolvedSearchType": "auto", "results": [self._exa_company()]})
        results = [self._exa_person(number, f"{NETWORK}/in/person-{number}") for number in range(count)]
        return web.json_response({**base, "resolvedSearchType": "auto", "results": results})

    def _exa_person(self, number: int, url: str) -> dict[str, Any]:
        properties = {
            "name": f"Person {number}",
            "firstName": "Person",
            "lastName": str(number),
            "location": "Berlin, Germany",
            "workHistory": [
                {
                    "title": "Engineer",
                    "location": "Berlin",
                    "dates": {"from": "2022-03-01", "to": None},
                    "company": {"id": "c1", "name": "Acme"},
                }
            ],
            "educationHistory": [
                {
                    "degree": "MSc",
                    "dates": {"from": "2014", "to": "2018"},
                    "institution": {"id": "i1", "name": "TU Berlin"},
                }
            ],
        }
        entity = {"id": f"p{number}", "type": "person", "version": 1, "properties": properties}
        text = {"text": "Builds things.", "author": f"Person {number}", "publishedDate": "2026-05-01T00:00:00.000Z"}
        return {"id": url, "url": url, "title": f"Person {number} | Engineer at Acme", **text, "entities": [entity]}

    def _exa_company(self) -> dict[str, Any]:
        properties = {
            "name": "Acme",
            "foundedYear": 1999,
            "description": "Makes everything.",
            "workforce": {"total": 120},
            "headquarters": {"city": "Berlin", "country": "Germany"},
        }
        entity = {"id": "c1", "type": "company", "version": 1, "properties": properties}
        url = f"{NETWORK}/company/acme"
        return {"id": url, "url": url, "title": "Acme", "entities": [entity]}


@contextlib.asynccontextmanager
async def start_fake() -> AsyncIterator[Fake]:
    fake = Fake()
    fake.slow.set()
    runner = web.ServerRunner(web.Server(fake.handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield fake
    finally:
        await runner.cleanup()
