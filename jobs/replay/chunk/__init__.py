"""The parts of a replay step: the records of a chunk, its time, its buckets, and the rows that it writes."""
