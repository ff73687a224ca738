"""Code that all pages share: JavaScript helpers, colours, and the making of single-file pages."""
