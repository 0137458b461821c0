"""The errors of repositories."""

from baobab.tools.core import BadRequest, BaobabError, Conflict, NotFound


class SnapshotNotFound(NotFound):
    summary = "The repository has no such snapshot."
    remediation = "List the snapshots with op:repo_snapshots_list; only the last five are kept."


class BlobNotFound(NotFound):
    summary = "The repository has no such blob."
    remediation = "op:repo_latest lists the files of the latest snapshot with the SHA-256 of each."


class ManifestInvalid(BadRequest):
    summary = "The list of files is not valid."
    remediation = "Name each path once, and each blob with one size, within the limits in details."


class RepoFileTooLarge(BaobabError):
    code = "QUOTA_FILE_SIZE_EXCEEDED"
    status = 413
    summary = "A file or the snapshot is too large."
    remediation = (
        "Keep files within 10 MiB each and a snapshot within 100 MiB; leave out what can be built from the rest."
    )


class RepoFull(BaobabError):
    code = "QUOTA_STORAGE_EXCEEDED"
    status = 402
    summary = "Too many uploaded blobs wait for a commit."
    remediation = "Commit what you have uploaded, or wait an hour: what is not committed by then is removed."


class BlobsMissing(Conflict):
    code = "STATE_PREREQUISITE_MISSING"
    summary = "Blobs of the snapshot are missing, or have another size."
    remediation = "Prepare the snapshot again with op:repo_prepare, upload what it says is missing, then commit."


class BlobDiffers(BadRequest):
    summary = "The body is not the blob that the address names."
    remediation = "Send exactly the bytes whose SHA-256 and length you prepared."


class BlobStoreFailed(BaobabError):
    code = "S3_ERROR"
    status = 502
    summary = "The object store does not answer."
    remediation = "Try again in a few seconds."
