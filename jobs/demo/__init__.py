"""`make demo` and `make year`: the story on real flights, and the flights log."""
