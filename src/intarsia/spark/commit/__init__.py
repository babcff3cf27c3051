"""The files of a Spark job, made visible all at once or not at all, on any storage.

May import the modules of ``spark`` and lower packages. Start with ``commit``.
"""
