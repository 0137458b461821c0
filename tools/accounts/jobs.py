"""Jobs of accounts."""

from baobab.tools.accounts.mailed_links import find_account, make_link
from baobab.tools.accounts.toolset import accounts
from baobab.tools.core import Job
from baobab.tools.core.auth.tables import accounts as rows
from baobab.tools.core.mail import Mail


@accounts.job(drop=True)
async def accounts_mail_new_password(job: Job, email: str) -> None:
    """Mails the link for a new password to an address, if it has an account. Whoever asked is not told whether it has,
    not even by how long the answer took.
    """
    async with job.writing(last=True, lock=None) as unit:
        account = await find_account(unit.execute, rows.c.email == email)
        if account is not None:
            link, expires_at = make_link(job.services, "new_password", account)
            await job.services.mailer.send(unit, Mail(email, "account_password", {"link": link}, expires_at=expires_at))
