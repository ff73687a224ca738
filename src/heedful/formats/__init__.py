"""Export to and import from other programs' formats, with a proof that both models agree."""
