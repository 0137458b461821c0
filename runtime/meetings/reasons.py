"""Why a bot did not get into a call, or left it: providers' codes in words, and which of them a second try may mend."""

from collections.abc import Mapping

_WORDS: Mapping[str, str] = {
    "timeout_exceeded_waiting_room": "Nobody let the bot in from the waiting room in time.",
    "timeout_exceeded_noone_joined": "Nobody joined the call in time.",
    "timeout_exceeded_everyone_left": "Everybody else had left the call.",
    "timeout_exceeded_silence_detected": "Nobody had spoken for a long time.",
    "timeout_exceeded_only_bots_detected_using_participant_names": "Only bots were left in the call.",
    "timeout_exceeded_only_bots_detected_using_participant_events": "Only bots were left in the call.",
    "timeout_exceeded_in_call_not_recording": "The bot was in the call for too long without recording.",
    "timeout_exceeded_in_call_recording": "The recording reached its longest duration.",
    "timeout_exceeded_recording_permission_denied": "The host did not allow the recording.",
    "timeout_exceeded_max_duration": "The call reached the longest duration of the provider.",
    "bot_kicked_from_call": "Somebody removed the bot from the call.",
    "bot_kicked_from_waiting_room": "Somebody refused the bot in the waiting room.",
    "bot_received_leave_call": "The bot was told to leave.",
    "call_ended_by_host": "The host ended the call.",
    "call_ended_by_platform_idle": "The platform ended the idle call.",
    "call_ended_by_platform_max_length": "The platform ended the call at its longest duration.",
    "call_ended_by_platform_waiting_room_timeout": "The platform closed the waiting room first.",
    "bot_errored": "The provider's bot failed.",
    "meeting_not_found": "There is no meeting at this address.",
    "meeting_not_started": "The meeting has not started, or its host is not there yet.",
    "meeting_requires_registration": "The meeting admits only people who have registered.",
    "meeting_requires_sign_in": "The meeting admits only people who are signed in.",
    "meeting_link_expired": "The link of the meeting has expired.",
    "meeting_link_invalid": "The link of the meeting is not valid.",
    "meeting_password_incorrect": "The password in the link is wrong.",
    "meeting_locked": "The meeting is locked.",
    "meeting_full": "The meeting is full.",
    "meeting_ended": "The meeting is over.",
    "failed_to_launch_in_time": "The provider did not start the bot in time.",
    "google_meet_bot_blocked": "Google Meet refused the bot.",
    "google_meet_sign_in_failed": "The bot could not sign in to Google.",
    "microsoft_teams_sign_in_failed": "The bot could not sign in to Microsoft Teams.",
    "teams_blacklisted_tenant": "The organisation behind this Teams meeting admits no bots.",
    "zoom_sdk_credentials_missing": "The provider has no credentials for Zoom.",
    "zoom_local_recording_disabled": "The host's Zoom account allows no local recording.",
    "bot_sign_in_failed": "The bot could not sign in.",
    "provider_unpaid": "This server's account at the provider of meetings has no credits left.",
    "provider_busy": "The provider had no free bot for an hour.",
    "provider_refused": "The provider refused the bot.",
    "provider_lost": "The provider does not know the bot any more.",
    "credits_exhausted": "The organisation's credits ran out, so the bot left the call.",
    "app_deleted": "The app was deleted, so the bot left the call.",
}
_TRANSIENT = frozenset({"failed_to_launch_in_time", "bot_errored", "provider_busy", "google_meet_bot_blocked"})
"""What the same bot may succeed with a moment later. A person's decision, or a wrong link, stays what it is."""
_PLATFORMS = ("zoom_", "google_meet_", "microsoft_teams_", "webex_", "goto_meeting_")


def explain(sub_code: str | None) -> str | None:
    """Returns a provider's code as a sentence; None for no code."""
    if not sub_code:
        return None
    for code in (sub_code, *(sub_code.removeprefix(platform) for platform in _PLATFORMS)):
        if code in _WORDS:
            return _WORDS[code]
    return f"{sub_code.replace('_', ' ').capitalize()}."


def is_transient(sub_code: str | None) -> bool:
    """Returns whether another bot, sent to the same call now, may get in."""
    return sub_code in _TRANSIENT
