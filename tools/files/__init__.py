"""Files of an app and of its users, whose bytes are in the object store of the app's region."""

from baobab.tools.files import jobs
from baobab.tools.files.tools import content, copies, many, named, objects, own_text, published, texts, uploads
from baobab.tools.files.toolset import files

TOOLSETS = (files,)
MODULES = (
    objects,
    content,
    texts,
    named,
    copies,
    many,
    published,
    uploads,
    own_text,
    jobs,
)
"""Importing these registers the tools and jobs of the toolset."""
