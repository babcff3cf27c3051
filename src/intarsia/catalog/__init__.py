"""The catalog of a data set: its files' identities, bounds, footers and keys, as bytes and objects.

Pure: what is written is given as values, what is read comes from a ``Source``. ``data`` asks it,
``write`` and ``spark`` make it.
"""
