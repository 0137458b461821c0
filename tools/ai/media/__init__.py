"""Images and videos of an app: submitted, made by a durable job, polled, downloaded."""
