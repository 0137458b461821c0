"""Reads documents that strangers wrote, in a child process that has no access to anything else and limited
resources.
"""
