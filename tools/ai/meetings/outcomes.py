"""What becomes of a finished transcript: a document of a collection, a source artifact of the substrate, and a run of
an agent, as the app has set it.

All are made with the right of whoever set it, as far as they have it then. A transcript is text of strangers: the run
is tainted from its first step, and the document is text from outside also in a collection of the app's own texts.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update

from baobab.runtime.meetings.provider import BotGone, Passage, ProviderBusy, ProviderRefused, Word
from baobab.tools.ai.meetings.following import find_provider
from baobab.tools.ai.meetings.progress import build_order
from baobab.tools.ai.meetings.schemas import Row
from baobab.tools.ai.meetings.tables import is_of, meeting_bots, meeting_settings
from baobab.tools.core import Account, BaobabError, Caller, Job, RetryLater
from baobab.tools.core.auth import proposers
from baobab.tools.core.context import RequestContext

MOST_A_DAY = 200
"""How many transcripts of an app are passed on in 24 hours; others wait."""
LONGEST_ARTIFACT = 400_000
"""How many characters of a transcript a source artifact has. It says if there are more."""
_TRIED_FOR = timedelta(days=2)
_PAUSE_SECONDS, _FULL_SECONDS, _LONGEST_BUSY_SECONDS = 60.0, 900.0, 600.0
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500
_MINUTE = 60
_LONGEST_PARAGRAPH = 400
"""Characters of what one paragraph says, unless a single word is longer."""
_columns = meeting_bots.c


async def pass_on(job: Job, row: Row, settings: Row, since: datetime) -> None:
    """Passes a transcript on. A second attempt adds no second document and starts no second run.

    since: when the transcript was there. Raises RetryLater while something passing is in the way, for two days.
    """
    failure: str | None = None
    try:
        await _require_room(job, row)
        await _make(job, row, settings.transcripts)
    except ProviderBusy as busy:
        failure = _explain_or_retry(job, since, min(max(busy.seconds, 1.0), _LONGEST_BUSY_SECONDS), str(busy))
    except (BotGone, ProviderRefused) as error:
        failure = f"The provider does not have the transcript. {error}".strip()
    except RetryLater as again:
        failure = _explain_or_retry(job, since, again.seconds, str(again))
    except BaobabError as error:
        failure = " ".join(text for text in (error.message, error.remedy) if text)
        if error.status == _TOO_MANY_REQUESTS or error.status >= _SERVER_ERROR:
            failure = _explain_or_retry(job, since, _PAUSE_SECONDS, failure)
    await _end(job, row, settings, failure)


def _explain_or_retry(job: Job, since: datetime, seconds: float, words: str) -> str:
    if job.services.clock.now() - since < _TRIED_FOR:
        raise RetryLater(seconds, words)
    return words


async def _require_room(job: Job, row: Row) -> None:
    is_recent = _columns.passed_on_at > job.services.clock.now() - timedelta(days=1)
    query = select(func.count()).where(is_of(meeting_bots, row.organisation_id, row.app_id), is_recent)
    async with job.services.database.reading() as connection:
        if (await connection.execute(query)).scalar_one() >= MOST_A_DAY:
            raise RetryLater(_FULL_SECONDS, f"{MOST_A_DAY} transcripts of the app were passed on within a day")


async def _make(job: Job, row: Row, transcripts: dict[str, Any]) -> None:
    services = job.services
    provider = find_provider(services, row)
    if provider is None:
        raise RetryLater(_PAUSE_SECONDS, f"The provider {row.provider} is not configured.")
    text = write_transcript(await provider.read_transcript(build_order(row), row.provider_id), row.started_at)
    async with services.database.reading() as connection:
        caller = await proposers.restore_caller(
            connection.execute, services.credits, transcripts["caller"], services.clock.now()
        )
    context = RequestContext("job", job.id, base_url=services.options.base_url, brings_outside_text=True)
    made_ids: dict[str, Any] = {}
    if transcripts["collection"] is not None:
        arguments = {"app_id": row.app_id, "name": transcripts["collection"], "text": text}
        arguments |= {"filename": name_document(row.started_at), "metadata": {"bot_id": row.id}}
        document, _ = await job.registry.run(job.registry.find("rag_ingest"), arguments, caller, context)
        made_ids["document_id"] = document["documentId"]
    if transcripts.get("substrate"):
        arguments = {"capability": "upsert_source_artifact", "payload": build_artifact(row, text)}
        arguments["idempotency_key"] = f"meeting-{row.id}"
        member = act_in(caller, row.organisation_id)
        proposal, _ = await job.registry.run(job.registry.find("substrate_propose"), arguments, member, context)
        # One that a principle keeps for a person is there once they agree.
        made_ids |= {"artifact_id": proposal["result"]["artifact_id"]} if proposal["result"] else {}
    if transcripts["agent"] is not None:
        run_input = {"bot_id": row.id, "transcript": text, "participants": row.participants, "metadata": row.metadata}
        run_input |= made_ids
        arguments = {"app_id": row.app_id, "name": transcripts["agent"], "input": run_input}
        arguments["idempotency_key"] = f"meeting-{row.id}"
        await job.registry.run(job.registry.find("agents_run"), arguments, caller, context)


async def _end(job: Job, row: Row, settings: Row, failure: str | None) -> None:
    now = job.services.clock.now()
    of_settings = (
        meeting_settings.c.organisation_id == settings.organisation_id,
        meeting_settings.c.id == settings.id,
    )
    async with job.writing(last=True, lock=row.organisation_id) as unit:
        await unit.execute(update(meeting_bots).where(_columns.id == row.id).values(passed_on_at=now))
        if failure is None:
            return
        query = select(meeting_settings.c.transcripts).where(*of_settings).with_for_update()
        transcripts = (await unit.execute(query)).scalar()
        if transcripts is not None:
            transcripts = transcripts | {"failure": {"bot_id": row.id, "at": now.isoformat(), "message": failure}}
            await unit.execute(update(meeting_settings).where(*of_settings).values(transcripts=transcripts))


def act_in(caller: Caller, organisation_id: str) -> Caller:
    """Returns the caller in the organisation whose app it is. A key is pinned to its own, which then is the same."""
    if isinstance(caller, Account) and caller.key_id is None:
        return Account(caller.account_id, organisation_id)
    return caller


def build_artifact(row: Row, text: str) -> dict[str, Any]:
    """Returns the payload of a source artifact. The same call is the same artifact, however often it is made."""
    title, *_ = text.splitlines()
    content = text
    if len(text) > LONGEST_ARTIFACT:
        content = text[:LONGEST_ARTIFACT].rpartition("\n\n")[0] + "\n\n(The transcript goes on.)\n"
    return {
        "kind": "meeting_transcript",
        "title": title.removeprefix("# "),
        "external_system": "meetings",
        "external_id": row.id,
        "content": content,
        "attrs": {"app_id": row.app_id, "participants": row.participants, "is_whole": content is text},
    }


def name_document(started_at: datetime | None) -> str:
    return "meeting.md" if started_at is None else f"{started_at:%Y-%m-%d %H.%M} meeting.md"


def write_transcript(passages: list[Passage], started_at: datetime | None) -> str:
    """Returns a transcript as Markdown: each paragraph begins with its minute and its speaker, so that whatever part of
    it is found later says who said it, and when. Who speaks for long has several.
    """
    title = "Meeting" if started_at is None else f"Meeting of {started_at:%Y-%m-%d %H:%M} UTC"
    paragraphs = [f"# {title}"]
    for passage in passages:
        for words in _split_words(passage["words"]):
            seconds = int(words[0]["start"])
            stamp = f"{seconds // _MINUTE:02d}:{seconds % _MINUTE:02d}"
            text = " ".join(word["text"] for word in words)
            paragraphs.append(f"[{stamp}] {passage['participant']['name']}: {text}")
    return "\n\n".join(paragraphs) + "\n"


def _split_words(words: list[Word]) -> Iterator[list[Word]]:
    """Yields the words of a passage in parts that are short enough for one chunk of a collection."""
    part, length = list[Word](), 0
    for word in words:
        if part and length + len(word["text"]) > _LONGEST_PARAGRAPH:
            yield part
            part, length = [], 0
        part.append(word)
        length += len(word["text"]) + 1
    if part:
        yield part
