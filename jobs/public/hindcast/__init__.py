"""What users of Hindcast import from their own code: `hindcast.reading`."""
