"""The errors of files, in the contract's codes."""

from baobab.tools.core import BadRequest, BaobabError, Conflict, Forbidden, NotFound
from baobab.tools.core.errors import AlreadyExists, InvalidType


class FileNotFound(NotFound):
    """Also answered for a file that the caller may not see."""

    summary = "There is no such file."
    remediation = "List the files that you may see with op:files_list. A file is listed once its bytes have arrived."


class PublishingRefused(Forbidden):
    code = "FILES_PUBLISHING_REFUSED"
    summary = "A user of an app cannot publish files to everybody."
    remediation = "Share the file with the app's users (`public`), or ask those who run the app to publish it."


class ContentTypeRefused(InvalidType):
    summary = "The app takes no files of this content type."
    remediation = "Send a file of a type in details.allowed_types, or allow this type with op:config_storage."


class FileTooLarge(BaobabError):
    code = "QUOTA_FILE_SIZE_EXCEEDED"
    status = 413
    summary = "The file is larger than the app allows."
    remediation = "Send a smaller file, or raise maxFileSizeMb with op:config_storage."


class QuotaExceeded(BaobabError):
    code = "QUOTA_STORAGE_EXCEEDED"
    status = 402
    summary = "The app has no storage left for this file."
    remediation = (
        "Raise storageLimitBytes with op:config_storage. Delete files (op:files_delete) only if whoever runs the app "
        "says which."
    )


class TooManyUploads(BaobabError):
    code = "FILES_UPLOADS_OPEN"
    status = 429
    summary = "Too many uploads have been started without their bytes having arrived."
    remediation = "Send their bytes, or wait until their addresses expire, which takes five minutes."


class StoreFailed(BaobabError):
    code = "S3_ERROR"
    status = 502
    summary = "The object store does not answer."
    remediation = "Try again in a few seconds."


class ContentTypeDiffers(InvalidType):
    summary = "The Content-Type is not the one that the upload was announced with."
    remediation = "Send the contentType of the upload as the Content-Type header, or announce another upload."


class LengthDiffers(BadRequest):
    summary = "The body does not have the announced length."
    remediation = "Send exactly details.expected_bytes bytes, or announce another upload with the right sizeBytes."


class AlreadyStored(AlreadyExists):
    summary = "The bytes of this file have arrived already."
    remediation = "Nothing is left to do. Start another upload for other bytes."


class UploadRunning(AlreadyExists):
    code = "FILES_UPLOAD_RUNNING"
    summary = "Another request is sending the bytes of this file."
    remediation = "Wait until it has ended, then look for the file with op:files_list."


class NoThumbnail(NotFound):
    summary = "The file has no thumbnail."
    remediation = (
        "Show the file itself. Thumbnails are made of PNG, JPEG, GIF, WebP, AVIF and TIFF pictures and of PDFs, of up "
        "to 20 MiB."
    )


class RangeNotSatisfiable(BaobabError):
    code = "RANGE_NOT_SATISFIABLE"
    status = 416
    summary = "The file has no bytes in this range."
    remediation = "Ask for a range below the size that Content-Range names."


class NotText(InvalidType):
    summary = "The file is not text in UTF-8."
    remediation = "Get its address with op:files_download, and fetch the bytes there."


class ContentInvalid(BadRequest):
    summary = "The content is not valid base64."
    remediation = "Encode the bytes as base64 (RFC 4648), or send text with encoding `text`."


class ContentAmbiguous(BadRequest):
    summary = "A file needs its content once: as text, or as base64."
    remediation = "Send `content` for a text, or `content_base64` for other bytes; not both."


class TusVersionRefused(BaobabError):
    code = "TUS_VERSION"
    status = 412
    summary = "This address takes uploads over tus 1.0.0, but the request does not name that version."
    remediation = "Use a client of tus 1.0, or send the header `Tus-Resumable: 1.0.0`."


class OffsetDiffers(Conflict):
    code = "FILES_OFFSET_DIFFERS"
    summary = "The bytes do not continue where the upload stopped."
    remediation = "Continue at details.received_bytes."

    @classmethod
    def at(cls, received_bytes: int) -> "OffsetDiffers":
        return cls(details={"received_bytes": received_bytes}, headers={"upload-offset": str(received_bytes)})


class BodyTypeRefused(BaobabError):
    code = "VALIDATION_INVALID_TYPE"
    status = 415
    summary = "The bytes of a resumable upload need a Content-Type of their own."
    remediation = "Send `Content-Type: application/offset+octet-stream`."


class MetadataInvalid(BadRequest):
    summary = "Upload-Metadata or Upload-Length is not valid."
    remediation = (
        "Send Upload-Length, and in Upload-Metadata pairs such as `filename aW1hZ2UucG5n,filetype aW1hZ2UvcG5n`."
    )


class CopyKeyReused(Conflict):
    code = "FILES_KEY_REUSED"
    summary = "An earlier call with this idempotency key asked for another copy."
    remediation = "Send the same arguments again to get that file, or send another key."


class ChoiceAmbiguous(BadRequest):
    summary = "The files to delete are named once: by their ids, or by the prefix of their names."
    remediation = "Send `ids` or `prefix`, and keep the files if you are not sure which are meant."
