"""The errors of notices."""

from baobab.tools.core import BadRequest, Conflict, NotFound


class ChannelNotFound(NotFound):
    code = "NOTICE_CHANNEL_NOT_FOUND"
    summary = "There is no such channel of this account."
    remediation = "op:notices_get lists those that there are."


class TooManyChannels(Conflict):
    code = "NOTICE_CHANNELS_FULL"
    summary = "The account has reached its limit of channels."
    remediation = "Use one that there is, or ask its person which may go (op:notices_channel_remove)."


class ChannelUnclear(BadRequest):
    code = "NOTICE_CHANNEL_UNCLEAR"
    summary = "The fields do not fit the kind of the channel."
    remediation = (
        "`email` takes `email`; `webhook`, `slack` and `discord` take `url`; `push` takes `url`, `p256dh` and `auth`."
    )


class CodeWrong(BadRequest):
    code = "NOTICE_CODE_WRONG"
    summary = "This is not the code that was mailed, it is older than a day, or the address is confirmed already."
    remediation = "Copy the code of the mail. If it is lost or old, remove the channel and add it again."


class NoMailServer(Conflict):
    code = "NOTICE_NO_MAIL_SERVER"
    summary = "This installation has no mail server."
    remediation = "Ask the operator to set BAOBAB_SMTP_URL. Until then, use another kind of channel."


class ScheduleUnclear(BadRequest):
    code = "NOTICE_SCHEDULE_UNCLEAR"
    summary = "The quiet hours or the escalation are not valid."
    remediation = (
        "Name a time zone such as Europe/Prague, two different times, and a member of one of your organisations."
    )
