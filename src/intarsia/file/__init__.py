"""One opened file: footer, indexes, sidecars, pages and damage. Start with ``open_file``."""
