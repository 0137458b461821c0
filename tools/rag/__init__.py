"""Retrieval: collections of documents that answer questions, with citations."""

from baobab.tools.rag import jobs
from baobab.tools.rag.tools import collections, documents, evaluation, query, reindexing
from baobab.tools.rag.toolset import rag

TOOLSETS = (rag,)
MODULES = (collections, documents, query, evaluation, reindexing, jobs)
"""Importing these registers the tools and jobs of the toolset."""
