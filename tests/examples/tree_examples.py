"""Trees for tests of reading, writing and scoring them."""

from hypothesis import strategies as st

from heedful.text.trees import TOP, Tree, Word

labels = st.sampled_from(["S", "NP", "VP", "PP", "ADVP", "PRT", "-LRB-", "X+Y", "木"])
_words = st.builds(
    Word,
    st.sampled_from(["NN", "VB", ",", ".", "PRP$", "-LRB-", "N-A"]),
    st.text("ab()*-.0é&<木", min_size=1, max_size=5),
)
_nodes: st.SearchStrategy[Tree | Word] = st.recursive(
    _words,
    lambda nodes: st.builds(Tree, labels, st.lists(nodes, min_size=1, max_size=4).map(tuple)),
    max_leaves=12,
)
trees = st.builds(Tree, st.just(TOP), st.lists(_nodes, min_size=1, max_size=3).map(tuple))
