"""Windows of MongoDB Atlas Stream Processing, in its own notation. docs/reference/atlas.md lists them."""
