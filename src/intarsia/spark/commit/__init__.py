"""Files of a Spark job made visible at once, or not at all, on each kind of storage.

May import the modules of ``spark``. Start with ``commit``.
"""
