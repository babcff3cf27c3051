"""Reading: one file, a scan with a filter, a data set.

Planning decides which rows might match; reading fetches their pages, and pyarrow alone decides
which rows do match.
"""
