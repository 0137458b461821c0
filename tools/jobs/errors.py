"""The errors of the tools of jobs."""

from baobab.tools.core import Conflict, NotFound


class JobNotFound(NotFound):
    code = "JOB_NOT_FOUND"
    summary = "The organisation has no such job. Jobs are deleted a day after they end, failed ones after 30 days."
    remediation = "op:jobs_list lists those that wait, run or have failed."


class JobNotRetried(Conflict):
    code = "JOB_NOT_RETRIED"
    summary = "The job is running or done, so it cannot be retried."
    remediation = "Read it with op:jobs_get."


class JobNotCancelled(Conflict):
    code = "JOB_NOT_CANCELLED"
    summary = "This job cannot be cancelled, because other data depends on it."
    remediation = "Leave it; if it has failed, op:jobs_retry tries it again."
