"""Plans: metadata and probes in, the rows and byte ranges that answer a query out.

All of it is pure: no module here reads a byte. A plan is data, can be pickled, and is executed
elsewhere.
"""
