"""Every option of an experiment on one page. A default is the paper's value where the paper has one."""

from dataclasses import dataclass, field
from typing import Literal

Family = Literal["transformer", "recurrent", "convolutional"]
Cell = Literal["lstm", "gru"]
AttentionKind = Literal["none", "additive", "multiplicative"]
Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "swish"]
Positions = Literal["sinusoidal", "learned"]
Sharing = Literal["all", "target", "none"]
TokenizerKind = Literal["bpe", "unigram", "wordpiece", "characters", "words", "symbols", "bytes"]
Vocabularies = Literal["joint", "separate"]
ScheduleKind = Literal["paper", "inverse-sqrt", "cosine", "linear", "constant"]
OptimizerKind = Literal["adam", "muon"]
OnNonFinite = Literal["stop", "skip"]
BestBy = Literal["loss", "bleu"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Parallel = Literal["copies", "shards"]
PrecisionKind = Literal["auto", "float32", "bfloat16", "float16"]
Method = Literal["beam", "sample", "mbr"]
Penalty = Literal["paper", "power"]
BleuTokens = Literal["13a", "intl", "none", "char", "zh", "ja-mecab", "ko-mecab", "flores200"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The network of section 3, or a rival of it."""

    preset: str = "paper"  # what every unnamed key of this page is taken from; `heedful info --preset NAME` shows it
    family: Family = "transformer"
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_k: int = 0  # width of a query and a key in one head; 0: d_model / num_heads
    d_v: int = 0  # width of a value in one head; 0: d_model / num_heads
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_heads: tuple[int, ...] = ()  # heads that pruning has left, one number a layer; none: num_heads everywhere
    decoder_heads: tuple[int, ...] = ()  # the same for the decoder's self-attention
    cross_heads: tuple[int, ...] = ()  # and for its attention to the source
    dropout: float = 0.1  # on each sub-layer's output, and on embedding + position
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    norm: Norm = "post"
    activation: Activation = "relu"
    positions: Positions = "sinusoidal"
    max_positions: int = 1024  # rows of the table of learned positions; later positions share the last row
    sharing: Sharing = "all"  # all: source = target = output; target: target = output; none
    output_bias: bool = False  # the output layer has a bias, as imported models have
    window: int = 0  # self-attention sees only so many positions to either side (section 4); 0: all
    cell: Cell = "gru"  # of the recurrent family
    attention: AttentionKind = "additive"  # of the recurrent family: Bahdanau's, Luong's or none
    kernel_width: int = 3  # positions that a convolution sees, of the convolutional family


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig:
    """How text becomes pieces."""

    kind: TokenizerKind = "bpe"
    vocabulary_size: int = 37_000  # pieces, the two special ones included
    vocabularies: Vocabularies = "joint"
    tokenizer_file: str = ""  # an existing tokenizer.json to use instead of training one
    bpe_dropout: float = 0.0  # probability that a merge is left out while training (kind "bpe")
    bpe_variants: int = 8  # how many segmentations of the corpus BPE dropout draws


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Where the pairs are. Lists are read one after another; `.gz` is unpacked; one `.tsv` holds both sides.

    A name with `*`, `?` or `[` stands for all files that it matches. Besides translation, a source without a target
    holds both sides: a dictionary, a treebank.
    """

    folder: str = ""  # where the files below are; empty: here
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    tsv: tuple[str, ...] = ()
    valid_source: tuple[str, ...] = ()
    valid_target: tuple[str, ...] = ()
    test_source: tuple[str, ...] = ()  # what `heedful evaluate` and studies score by, unless told otherwise
    test_target: tuple[str, ...] = ()
    hold_out: int = -1  # pairs set aside for validation where none are given; -1: 2 %, at most 1000, of few a tenth
    source_language: str = ""  # two letters; empty: from the file's suffix
    target_language: str = ""
    max_length: int = 256  # pairs with more pieces than this on either side are dropped
    max_ratio: float = 0.0  # pairs whose lengths differ by more than this factor are dropped; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Section 5."""

    max_steps: int = 100_000
    max_minutes: float = 0.0  # 0: no limit
    batch_tokens: int = 25_000  # pieces of source, and of target, in one update
    accumulate: int = 1  # micro-batches that an update is split into
    label_smoothing: float = 0.1
    schedule: ScheduleKind = "paper"
    learning_rate: float = 1.0  # paper: a factor on the schedule; others: the peak
    warmup_steps: int = 4000
    optimizer: OptimizerKind = "adam"  # muon: for matrices Muon, for all else Adam
    weight_decay: float = 0.0
    clip_norm: float = 0.0  # 0: no clipping
    ema_decay: float = 0.0  # 0: none; else validation and the saved model use the moving average
    save_every: int = 1000
    validate_every: int = 1000
    validate_bleu: bool = True  # BLEU of greedy translations, or what else the task is scored by
    best_by: BestBy = "loss"
    patience: int = 0  # validations without a better score before it stops; 0: never
    average_checkpoints: int = 5  # the model is the mean of the last so many checkpoints; 1: the best one
    on_non_finite: OnNonFinite = "stop"
    device: Device = "auto"
    threads: int = 0  # 0: all cores
    precision: PrecisionKind = "auto"  # of matrix products; auto: the fastest that the device has
    compile: bool = False  # let torch.compile fuse each layer, where that is faster
    checkpoint_activations: bool = False  # work out each layer's activations twice instead of keeping them
    parallel: Parallel = "copies"  # what each of several processes holds: the whole model, or a part of every weight
    timeout_minutes: float = 10.0  # a process that does not answer the others for so long is taken for lost
    init: str = ""  # a model to begin with instead of random weights: a run folder, an export or a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """Section 6.1."""

    beam: int = 4
    alpha: float = 0.6
    penalty: Penalty = "paper"  # paper: ((5 + n) / 6)^alpha; power: n^alpha
    max_extra: int = 50  # an output has at most source length + this many pieces
    min_length: int = 0
    no_repeat_ngram: int = 0  # n-grams of this size may not come twice; 0: off
    guard: bool = True  # a translation that loops or does not end is searched for once more, without repeats
    groups: int = 1  # parts of the beam that are kept apart from each other (Vijayakumar et al., 2018)
    diversity: float = 0.0  # what a token costs for every group before that has it at the same place
    method: Method = "beam"  # sample: draw outputs; mbr: of many drawn the one that the others agree with most
    samples: int = 32  # drawn for mbr
    temperature: float = 1.0  # of drawing: below 1 likely tokens become likelier
    top_k: int = 0  # draw from so many tokens; 0: from all
    top_p: float = 1.0  # draw from the likeliest tokens that together have this probability
    seed: int = 1  # of drawing; what is drawn depends on it and on the sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    """How outputs are compared with references."""

    tokenize: BleuTokens = "13a"  # sacreBLEU's name; "none" for text that is tokenised already


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One TOML file: everything that a training run depends on."""

    name: str = ""
    task: str = "translation"  # one of `heedful.tasks.TASKS`; it changes some defaults
    seed: int = 1
    model: ModelConfig = field(default_factory=ModelConfig)
    text: TextConfig = field(default_factory=TextConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
