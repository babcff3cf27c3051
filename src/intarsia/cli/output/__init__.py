"""Output of commands: tables, JSON, HTML pages, streams of rows. Start with ``tables``."""
