"""Storm's XOR acker, its spout and its anchors."""
