"""The questions of docs/how-to/explain.md: each is answered by the step that the page names."""

import re
from html import unescape
from pathlib import Path

import pytest

from heedful.config import ModelConfig, SearchConfig
from heedful.inspection.explain import explain_sentence
from heedful.inspection.explanation_page import make_explanation_page

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "explain.md"
ANSWERS = {
    "Does the model read words or letters?": "Frequent words are one piece, rare words are several",
    "Where do the numbers of a word come from?": r"Each id selects one row of a matrix of [\d,]+ × 24 learned numbers",
    "How does the model know the order of the words?": "Attention alone cannot tell the order of words",
    "What are query, key and value?": "a query, which says what it looks for; a key, by which it is found; and a value",
    "Why divide by the root of d_k?": "the softmax of large numbers picks one key and ignores the rest",
    "Why must the weights of a row add up to 1?": "a mean only if the shares add up to 1",
    "Why several heads instead of one?": "One head can look for one kind of thing at a time",
    "What happens to the results of the heads?": "stand side by side and go through one matrix",
    "Why is x added again?": "The result is added to what came in",
    "What does the norm do?": "mean 0 and spread 1",
    "What does the feed-forward network do, and does each position have its own?": (
        "The same small network works on each piece alone, with the same weights at every position"
    ),
    "Why is the mask minus infinity and not zero?": "e to the power of minus infinity is 0, while a score of 0 would",
    "Where do the two languages meet?": "queries come from the decoder, keys and values from the encoder",
    "When does the model know what it is going to say?": "you see how the answer forms",
    "How does a vector become a word?": "the larger the dot product, the likelier the piece",
    "Why not simply take the likeliest word each time?": "What if the search were greedy?",
    "How does the model learn?": "measures how surprised it is at each piece, and moves every weight a little",
    "How much does it have to compute, and what if the text is long?": "attention grows with the square",
    "Do the weights of attention explain the translation?": "show where it looks, not how much depends on it",
    "Is the mask needed when the model translates?": "When a whole beginning is run at once",
    "Why multiply the embedding by the root of d_model?": r"spread of 0\.\d+. The root brings it to \d\.\d+, so that",
    "Why add the position, and not set it beside the embedding?": "the same with one matrix for both",
    "Do several heads cost more than one?": "Several heads cost no more than one: the matrices of 2 heads with 12",
    "What can the feed-forward network do that attention cannot?": "Attention only mixes vectors",
    "Why does one word get another vector in another sentence?": "the same word means something else in another",
    "Why does the decoder read its output one place later?": "it would learn to copy it",
    "How does attention to the source differ from self-attention?": (
        "In self-attention, queries, keys and values all come from the same vectors"
    ),
    "When does the search end?": "A beginning ends with the piece </s>, and leaves the beam",
    "What is label smoothing good for?": "Smoothing keeps it from ever being too sure",
    "Does the model handle all words at once?": "the decoder makes one piece after another",
}


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """The text of each step."""
    from explained import untrained

    config = ModelConfig(d_model=24, d_ff=40, num_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
    own = untrained(config, SearchConfig(beam=2, max_extra=3))
    html = make_explanation_page(explain_sentence(Path("run"), own, "A dog runs.", own.search, "Ein Hund."))
    found = re.findall(r'<section class="step" id="([^"]+)"(.*?)</section>', html, re.DOTALL)
    return {name: re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", text))) for name, text in found}


def test_every_question_of_the_guide_has_an_answer_here() -> None:
    rows = re.findall(r"^\| (.+\?) \| `[\w.-]+` \|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(ANSWERS)
    assert len(rows) == 30


@pytest.mark.parametrize("question", ANSWERS)
def test_the_step_answers_the_question(question: str, sections: dict[str, str]) -> None:
    row = next(line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {question}"))
    (step,) = re.findall(r"\| `([\w.-]+)` \|$", row)
    assert re.search(ANSWERS[question], sections[step]), sections[step][:900]
