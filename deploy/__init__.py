"""How Hindcast runs in containers; nothing here is imported by the product."""
