"""The Spark session: its settings, jars, Java, private directory and environment."""
