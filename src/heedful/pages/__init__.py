"""What all pages share: helpers in JavaScript, colours, and pages as single files."""
