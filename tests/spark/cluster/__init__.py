"""Tests on a cluster of several processes, which ends with the last of them."""
