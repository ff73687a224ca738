"""Files of many kinds as passages to translate, and back: what is not text for people stays as it was."""
