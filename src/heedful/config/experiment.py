"""Every option of an experiment on one page. Where the paper gives a value, it is the default."""

from dataclasses import dataclass, field
from typing import Literal

Family = Literal["transformer", "recurrent", "convolutional", "gpt", "bert", "t5", "vit"]
Cell = Literal["lstm", "gru"]
AttentionKind = Literal["none", "additive", "multiplicative"]
Head = Literal["masked", "sequence", "tokens", "none"]
Pooling = Literal["cls", "mean"]
Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "gelu-tanh", "gated-gelu-tanh", "swish"]
Positions = Literal["sinusoidal", "learned", "relative"]
Sharing = Literal["all", "target", "inputs", "none"]
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

# A translation counts as low-confidence if the geometric mean of its pieces' probabilities is below this. It costs
# nothing, because the search adds up their logarithms anyway. Models differ: see `docs/how-to/translate.md`.
LOW_CONFIDENCE = 0.68


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The network of section 3, or a rival of it."""

    preset: str = "paper"  # the source of every key that is not set; see `heedful info --preset NAME`
    family: Family = "transformer"
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_k: int = 0  # width of a query and a key in one head; 0: d_model / num_heads
    d_v: int = 0  # width of a value in one head; 0: d_model / num_heads
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_heads: tuple[int, ...] = ()  # number of heads in each layer after pruning; empty: num_heads
    decoder_heads: tuple[int, ...] = ()  # the same for the decoder's self-attention
    cross_heads: tuple[int, ...] = ()  # the same for its cross-attention
    dropout: float = 0.1  # on the output of each sub-layer and on the sum of embedding and position
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    norm: Norm = "post"
    activation: Activation = "relu"
    positions: Positions = "sinusoidal"
    max_positions: int = 1024  # size of the table of learned positions, whose last row later ones share; context of GPT
    max_distance: int = 16  # of relative positions: keys that are further away share a bias
    sharing: Sharing = "all"  # all: source = target = output; target: target = output; inputs: source = target; none
    output_bias: bool = False  # set by `heedful import`
    head: Head = "masked"  # of BERT: what it is asked about, hidden tokens, a whole text or each word; set by the task
    pooling: Pooling = "cls"  # the summary of a text or picture: the first position, or the mean of all
    unit_length: bool = True  # a text's vector has length 1 (BERT without a head); set by `heedful import`
    labels: tuple[str, ...] = ()  # of a model that classifies, in the order of the outputs; set by the data
    image_size: int = 224  # of ViT: pictures have this many pixels on each side
    patch_size: int = 16  # of ViT: pixels on each side of a patch
    channels: int = 3  # of ViT: 3 for colour, 1 for grey
    norm_epsilon: float = 1e-6  # of ViT's norms; set by `heedful import`
    window: int = 0  # self-attention sees this many positions to either side (section 4); 0: all
    cell: Cell = "gru"  # recurrent family only
    attention: AttentionKind = "additive"  # recurrent family only: Bahdanau's, Luong's or none
    kernel_width: int = 3  # convolutional family only


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig:
    """How text is split into pieces."""

    kind: TokenizerKind = "bpe"
    vocabulary_size: int = 37_000  # number of pieces, including the two special ones
    vocabularies: Vocabularies = "joint"
    tokenizer_file: str = ""  # an existing tokenizer.json to use instead of training one
    bpe_dropout: float = 0.0  # probability that a merge is left out while training (kind "bpe")
    bpe_variants: int = 8  # number of segmentations of the corpus that BPE dropout draws


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The files of sentence pairs. Lists are read in order, `.gz` is unpacked, and a `.tsv` holds both sides.

    A name with `*`, `?` or `[` is a pattern. In tasks other than translation, a source without a target holds both
    sides, such as a dictionary or a treebank.
    """

    folder: str = ""  # folder of the files below; empty: the current folder
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    tsv: tuple[str, ...] = ()
    text: tuple[str, ...] = ()  # plain text to learn to continue (task "completion"); each file is one text
    valid_text: tuple[str, ...] = ()
    images: tuple[str, ...] = ()  # folders with one sub-folder of pictures a class, or IDX files (task "pictures")
    valid_images: tuple[str, ...] = ()
    shift: int = 0  # of pictures: in training, each is moved by up to this many pixels
    flip: bool = False  # of pictures: in training, half of them are mirrored
    valid_source: tuple[str, ...] = ()
    valid_target: tuple[str, ...] = ()
    test_source: tuple[str, ...] = ()  # default test set of `heedful evaluate` and of studies
    test_target: tuple[str, ...] = ()
    # Pairs held out for validation if none are given; -1: 2 %, at most 1000; 10 % of small corpora. Of plain text these
    # are its last characters; -1: 10 %, at most 200 000. Of labelled texts and pictures -1 is 10 %, at most 2000.
    hold_out: int = -1
    source_language: str = ""  # two letters; empty: from the file's suffix
    target_language: str = ""
    max_length: int = 256  # drop pairs with more pieces than this on either side
    max_ratio: float = 0.0  # drop pairs whose lengths differ by more than this factor; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Section 5."""

    max_steps: int = 100_000
    max_minutes: float = 0.0  # 0: no limit
    batch_tokens: int = 25_000  # source pieces, and target pieces, per update
    accumulate: int = 1  # number of micro-batches per update
    label_smoothing: float = 0.1
    schedule: ScheduleKind = "paper"
    learning_rate: float = 1.0  # the paper's schedule: a factor; other schedules: the peak
    warmup_steps: int = 4000
    dropout_warmup: int = 0  # updates over which dropout rises from a third of its value; 0: none
    word_dropout: float = 0.0  # probability that a piece is hidden from the model, on either side
    r_drop: float = 0.0  # weight of the divergence between two passes with different dropout; 0: one pass
    optimizer: OptimizerKind = "adam"  # muon: Muon for matrices, Adam for the rest
    weight_decay: float = 0.0
    clip_norm: float = 0.0  # 0: no clipping
    ema_decay: float = 0.0  # if set, the moving average is validated and saved; 0: none
    save_every: int = 1000
    validate_every: int = 1000
    validate_bleu: bool = True  # also compute BLEU of greedy translations, or the task's own score
    best_by: BestBy = "loss"
    patience: int = 0  # stop after this many validations without improvement; 0: never
    average_checkpoints: int = 5  # average this many last checkpoints; 1: keep the best model
    on_non_finite: OnNonFinite = "stop"
    device: Device = "auto"
    threads: int = 0  # 0: all cores
    precision: PrecisionKind = "auto"  # of matrix products; auto: the fastest type of the device
    compile: bool = False  # fuse each layer with torch.compile
    checkpoint_activations: bool = False  # recompute each layer's activations to save memory
    parallel: Parallel = "copies"  # each process holds the whole model (DDP), or a shard of every weight (FSDP2)
    timeout_minutes: float = 10.0  # treat a process as lost after this time without an answer
    init: str = ""  # start from this model: a run folder, an export or a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """Section 6.1."""

    beam: int = 4
    alpha: float = 0.6
    penalty: Penalty = "paper"  # paper: ((5 + n) / 6)^alpha; power: n^alpha
    max_extra: int = 50  # maximum output length: source length + this
    min_length: int = 0
    no_repeat_ngram: int = 0  # no n-gram of this size may occur twice; 0: off
    guard: bool = True  # search again, without repeats, if a translation loops or does not end
    groups: int = 1  # diverse beam search (Vijayakumar et al., 2018)
    diversity: float = 0.0  # penalty for a token that earlier groups chose at the same position
    method: Method = "beam"  # mbr: draw many samples and choose the one that agrees most with the others
    samples: int = 32  # number of samples for mbr
    temperature: float = 1.0  # of sampling
    top_k: int = 0  # sample from this many tokens; 0: from all
    top_p: float = 1.0  # sample from the most probable tokens with this total probability
    seed: int = 1  # of sampling; a sample depends on the seed and the sentence alone
    low_confidence: float = LOW_CONFIDENCE  # flag a translation if its mean probability per piece is below this


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    """How outputs are compared with references."""

    tokenize: BleuTokens = "13a"  # sacreBLEU's name; "none" for tokenised text


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
