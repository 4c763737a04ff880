"""windowlib on Spark: reading a log in order, replaying its keys by bucket, and the rows of the result.

This is the only package of windowlib that imports Spark.
"""
