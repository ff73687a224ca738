"""What all pages share, and the page of a comparison."""
