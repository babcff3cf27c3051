"""Reading one file: what is asked of it, which rows might match, the pages that hold them.

Planning decides which rows might match; reading fetches their pages, and pyarrow alone decides
which rows do match. Files by the thousand are the room ``data``'s.
"""
