"""The files of a job, made visible all at once or not at all, on any storage.

A job writes files under temporary names, and a commit publishes them. May import ``writer``,
``dataset`` and lower packages. Start with ``commit``.
"""
