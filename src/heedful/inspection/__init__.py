"""Look inside a model: pages, pictures and reports of its attention; prune its heads."""
