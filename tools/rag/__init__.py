"""Retrieval: collections of documents that answer questions, with citations."""

from baobab.tools.rag import jobs
from baobab.tools.rag.tools import collections, documents, query
from baobab.tools.rag.toolset import rag

TOOLSETS = (rag,)
MODULES = (collections, documents, query, jobs)
"""Importing these registers the tools and jobs of the toolset."""
