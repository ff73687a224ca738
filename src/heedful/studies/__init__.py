"""The paper's comparisons as rows of experiments that anyone can run."""
