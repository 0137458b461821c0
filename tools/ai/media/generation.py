"""The durable job that has an image or a video made: asks the provider, asks again until it is done, keeps the files.

It is attempted at least once, and what counts is written by the latest attempt only. The provider is asked to begin
anew only while nothing says that it has accepted. Each attempt puts files in a place of its own, so that what another
one wrote is never among them.
"""
