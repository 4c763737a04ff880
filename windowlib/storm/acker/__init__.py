"""Storm's XOR acker, with its spout side and its bolt side."""
