"""The paper's tables, figures and ablations as experiments that anyone can run."""
