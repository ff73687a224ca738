"""What all sections of an explanation have in common: a title, its place in the paper, and "what if ...?"."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from types import MappingProxyType

from heedful.inspection.explain import Explained, Reordered
from heedful.inspection.markup import mark_differences, times_less_likely


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step is in the paper, in the code and in the tests."""

    paper: str
    file: str  # below src/heedful
    name: str
    test: str


PLACES = {
    "text": Place(
        "5.1",
        "text/tokenizer.py",
        "Tokenizer",
        "test_the_stages_of_a_piece_begin_with_its_characters_and_end_with_itself",
    ),
    "embedding": Place(
        "3.4",
        "nn/embedding.py",
        "Embedding",
        "test_its_standard_deviation_is_d_model_to_the_minus_half_and_look_up_scales_it",
    ),
    "positions": Place("3.5", "nn/positions.py", "sinusoids", "test_sine_at_even_and_cosine_at_odd_dimensions"),
    "distances": Place(
        "after the paper", "nn/positions.py", "DistanceBias", "test_every_step_follows_from_the_steps_before_it"
    ),
    "attention": Place("3.2.1, equation 1", "nn/attention.py", "attend", "test_it_is_equation_1_with_the_root_of_d_k"),
    "mask": Place(
        "3.2.3", "nn/masks.py", "causal_mask", "test_a_masked_key_has_weight_exactly_zero_and_rows_sum_to_one"
    ),
    "heads": Place("3.2.2", "nn/attention.py", "SelfAttention", "test_self_attention_is_the_heads_side_by_side"),
    "cross": Place("3.2.3", "nn/attention.py", "CrossAttention", "test_every_step_follows_from_the_steps_before_it"),
    "residual": Place("3.1, 5.4", "nn/residual.py", "Residual", "test_post_norm_is_as_in_the_paper"),
    "residual.pre": Place(
        "after the paper", "nn/residual.py", "Residual", "test_pre_norm_leaves_the_residual_path_free"
    ),
    "feed_forward": Place("3.3, equation 2", "nn/feed_forward.py", "FeedForward", "test_it_is_equation_2"),
    "stack": Place("3.1", "models/transformer.py", "Transformer", "test_no_norm_comes_after_the_stacks"),
    "stack.pre": Place("3.1", "models/transformer.py", "Transformer", "test_pre_norm_has_one_after_each_stack"),
    "output": Place(
        "3.4", "models/seq2seq.py", "Seq2Seq", "test_all_three_embeddings_are_one_matrix_without_an_output_bias"
    ),
    "training": Place(
        "5.3, 5.4", "nn/loss.py", "smoothed_loss", "test_a_training_step_has_the_loss_and_gradients_of_training"
    ),
    "cost": Place("table 1", "models/flops.py", "forward_flops", "test_the_parts_add_up_to_the_whole_model"),
    "path": Place(
        "4, table 1",
        "nn/attention.py",
        "attend_windowed",
        "test_news_reaches_every_piece_in_one_layer_or_its_neighbours",
    ),
    "without": Place(
        "table 3",
        "inspection/counterfactuals.py",
        "CounterfactualRunner",
        "test_all_experiments_run_and_leave_the_model_as_it_was",
    ),
    "rival": Place(
        "section 2, table 1",
        "attention/rival_steps.py",
        "record_rival_steps",
        "test_weights_and_contexts_follow_from_queries_keys_and_values",
    ),
    "gpt": Place(
        "after the paper", "models/gpt.py", "GPT", "test_every_step_of_a_gpt_follows_from_the_steps_before_it"
    ),
    "sampling": Place(
        "after the paper", "decoding/sampling.py", "sample_search", "test_a_traced_draw_is_the_token_that_was_drawn"
    ),
    "beam": Place("6.1", "decoding/beam.py", "beam_search", "test_its_best_hypothesis_is_that_of_the_search"),
}


class SectionWriter:
    """Writes sections of the page about one sentence."""

    found: Explained
    orders: Mapping[str, Reordered] = MappingProxyType(
        {}
    )  # the words in other orders, and what the model makes of them

    def __init__(self, found: Explained) -> None:
        self.found, self.config, self.steps = found, found.config, found.steps
        self.given, self.noun, self.baseline = found.given, found.noun, found.baseline_text
        self.rank = {name: place for place, name in enumerate(found.ranked_heads(), 1)}

    def labels(self, side: str) -> tuple[str, ...]:
        found = self.found
        return {"source": found.source_pieces, "inputs": found.input_pieces, "target": found.target_pieces}[side]

    def figure(self, view: str, matrix: str, rows: str, arithmetic: str) -> str:
        return (
            f'<div class="figure" data-view="{view}" data-matrix="{matrix}" data-rows="{rows}" '
            f'data-arithmetic="{arithmetic}"></div>'
        )

    def without(self, question: str, name: str, more: str = "") -> str:
        """What the model writes without a part, beside what the same search finds with it; and the price."""
        text, verdict = self.found.text_without(name), times_less_likely(self.found.cost_without(name))
        if text != self.baseline:
            quote = f'<p class="quote"><bdi>{mark_differences(self.baseline, text)}</bdi></p>'
            sentence = f"The {self.noun} above becomes {verdict}."
        else:
            same = f"The {self.noun}" if self.found.writes_the_same else "What the model writes"
            quote, sentence = "", f"{same} stays the same, and the {self.noun} above is {verdict}."
        return f"""<aside class="without"><h3>{escape(question)}</h3>{quote}<p>{sentence} {more}</p></aside>"""

    def describe_baseline(self) -> str:
        """What the experiments are compared with, if that is not the text that was given."""
        if self.found.writes_the_same:
            return ""
        why = (
            f"Somebody else wrote the {self.noun} above"
            if self.found.requested
            else f"<code>heedful translate</code> gave the {self.noun} above; its faster engine rounds numbers, which "
            "can decide between two that are almost as likely"
        )
        return f"""<aside class="said"><h3>Two {self.noun}s</h3>
<p class="quote"><bdi>{mark_differences(self.given, self.baseline)}</bdi></p>
<p>This is what the model writes in the experiments, with all its parts. {why}. Every step of this page is about the
{self.noun} above, and so is every “times less likely”. What the model writes without a part is compared with what it
writes here.</p></aside>"""

    def explain_bytes(self) -> str:
        """What the byte pieces among the neighbours are, if there are any."""
        near = (piece for each in self.found.neighbours for piece, _ in each.nearest)
        byte = next((piece for piece in near if re.fullmatch(r"<0x[0-9A-F]{2}>", piece)), "")
        return (
            f'<p class="muted">{escape(byte)} is one byte, for characters that have no piece of their own. Training '
            "meets most bytes hardly ever, so it means little what they lie close to.</p>"
            if byte
            else ""
        )

    def reordered(self, name: str) -> str:
        """The words in another order and what the model makes of them, as two lines."""
        found = self.orders[name]
        source = mark_differences(self.found.text, found.text)
        made = mark_differences(self.baseline, self.found.spell(found.made))
        return (
            f'<p class="quote"><span class="muted">in</span> <bdi>{source}</bdi></p>'
            f'<p class="quote"><span class="muted">out</span> <bdi>{made}</bdi></p>'
        )

    def _ranked(self, text: str, more: str = "experiments.heads") -> str:
        """The heads that matter most for this text."""
        found = self.found
        link = f'<p><a href="#{more}">All {len(found.ranked_heads())} heads, ranked</a></p>' if more else ""
        rows = "".join(
            f'<tr><th scope="row"><a href="#{name if more else name.split(".head.")[0]}">{head_title(name)}</a></th>'
            f'<td class="fixed">{times_less_likely(found.cost_without(name))}</td>'
            f"<td><bdi>{mark_differences(self.baseline, found.text_without(name))}</bdi></td></tr>"
            for name in found.ranked_heads()[:6]
        )
        return f"""
<h3>Which heads matter most for this {text}</h3>
<div class="scroll"><table class="ranked"><thead><tr><th scope="col">without</th>
<th scope="col">the {self.noun} above becomes</th>
<th scope="col">and the model says</th></tr></thead><tbody>{rows}</tbody></table></div>
{link}"""

    def section(
        self,
        step: str,
        box: str,
        part: str,
        title: str,
        plain: str,
        body: str,
        place: str,
        formula: str = "",
        shape: str = "",
    ) -> str:
        where = PLACES.get(f"{place}.{self.config.norm}", PLACES[place])
        shapes = f"<div><dt>shape</dt><dd>{shape}</dd></div>" if shape else ""
        paper = f"section {where.paper}" if where.paper[0].isdigit() else where.paper
        lead = f'<p class="plain lead">{plain}</p>' if plain else ""
        return f"""<section class="step" id="{step}" data-box="{box}" aria-labelledby="title.{step}">
<p class="part">{part}</p><h2 id="title.{step}" tabindex="-1">{title}</h2>{lead}{formula}
{body}
<dl class="places">{shapes}<div><dt>paper</dt><dd>{paper}</dd></div>
<div><dt>code</dt><dd><code>{where.file}</code> <code>{where.name}</code></dd></div>
<div><dt>test</dt><dd><code>{where.test}</code></dd></div></dl>
</section>"""


def layer_title(name: str) -> str:
    stack, layer, *_ = name.split(".")
    return f"{stack.capitalize()} · layer {layer}"


_SUBLAYERS = {
    "attention": "self-attention",
    "cross_attention": "attention to the source",
    "feed_forward": "the feed-forward network",
}


def sublayer_title(name: str, capital: bool = False) -> str:
    stack, _, part, *_ = name.split(".")
    title = "masked self-attention" if (stack, part) == ("decoder", "attention") else _SUBLAYERS[part]
    return title[0].upper() + title[1:] if capital else title


def short_head_title(name: str) -> str:
    """The name of a head for tables and charts."""
    stack, layer, part, _, head = name.split(".")
    return f"{'to the source' if part == 'cross_attention' else stack}, layer {layer}, head {head}"


def head_title(name: str, capital: bool = False) -> str:
    stack, layer, part, _, head = name.split(".")
    of = {"attention": f"the {stack}'s layer {layer}", "cross_attention": f"the decoder's layer {layer}, to the source"}
    title = f"head {head} of {of[part]}"
    return title[0].upper() + title[1:] if capital else title
