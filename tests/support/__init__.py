"""Builders that the tests of several parts share."""
