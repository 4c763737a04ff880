"""Suites from history: `propose` writes a first suite, `try` shows what a suite would have said of every past slice."""
