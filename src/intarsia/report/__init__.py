"""Pictures: the HTML page of a query's reads, and that of a file.

What is drawn is decided apart from how: ``query`` and ``file`` make data of shares and texts, and
templates beside them set it out. Nothing here reads anything but what a footer and page indexes say
of a file; nothing is written.
"""
