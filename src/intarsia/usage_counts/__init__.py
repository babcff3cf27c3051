"""Which indexes save how much: counts that a process makes if asked to, in a small local file.

``usage``, in public ``intarsia.usage``, counts in memory as queries are planned, and writes from
time to time. ``usage_file`` reads and merges the file. May import ``plan`` and lower packages.
"""
