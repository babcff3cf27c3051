"""The actions of commands; imported when a command runs. Start with ``scan``."""
