"""Scripts of the container image. The other packages do not import them."""
