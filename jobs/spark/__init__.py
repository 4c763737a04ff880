"""The Spark session: settings, jars, Java, private directory, environment."""
