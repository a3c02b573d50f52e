"""What an op is called whoever ran it: one name for those of aten, of libraries and of CANN's kernel types.

A name is squeezed (small letters, no underscores, no version, no "native"), then looked up: names of one piece of work
have one word. What no line names keeps its squeezed name, which many types of CANN share with aten ("Sqrt", "TopKV2").
"""

from __future__ import annotations

import re
from functools import lru_cache

from roofwatch.model.record import Vendor

LONGEST = 256  # characters of a name that are looked at: names are untrusted

WITH_ADDEND = {"mm": "addmm", "bmm": "baddbmm"}
PRODUCTS = frozenset({*WITH_ADDEND, *WITH_ADDEND.values()})  # 2·M·N·K FLOPs, whichever operand is transposed
FAMILIES = {addmm: mm for mm, addmm in WITH_ADDEND.items()}  # what is one op as soon as sizes do not matter

_WORDS: dict[str, str] = {
    "mm": "mm",
    "addmm": "addmm addmmactivation linear mkldnnlinear linearpointwise fullyconnection",
    "bmm": "bmm batchmatmul",
    "grouped_mm": "groupedmm groupedmatmul groupedgemm",
    "convolution": (
        "convolution conv1d conv2d conv3d cudnnconvolution miopenconvolution mkldnnconvolution thnnconv2d "
        "slowconv2dforward convdepthwise2d convolutionoverrideable depthwiseconv2d miopendepthwiseconvolution "
        "cudnnconvolutionrelu cudnnconvolutionaddrelu nnpackspatialconvolution"
    ),
    "convolution_backward": "convolutionbackward convolutionbackwardoverrideable npuconvolutionbackward",
    "convolution_backward_input": "convolutionbackwardinput conv2dbackpropinput conv3dbackpropinput",
    "convolution_backward_weight": "convolutionbackwardweight conv2dbackpropfilter conv3dbackpropfilter",
    "attention": (
        "attention flashattentionforward efficientattentionforward cudnnattentionforward scaleddotproductattention "
        "scaleddotproductflashattention scaleddotproductefficientattention scaleddotproductcudnnattention "
        "scaleddotproductflashattentionforcpu scaleddotproductfusedattentionoverrideable flashattentionscore "
        "unpadflashattentionscore promptflashattention increflashattention fusedinferattentionscore npufusionattention"
    ),
    "attention_backward": (
        "flashattentionbackward efficientattentionbackward cudnnattentionbackward flashattentionscorebackward "
        "scaleddotproductflashattentionbackward scaleddotproductefficientattentionbackward "
        "scaleddotproductcudnnattentionbackward scaleddotproductflashattentionforcpubackward "
        "scaleddotproductfusedattentionoverrideablebackward unpadflashattentionscorebackward npufusionattentionbackward"
    ),
    "softmax": "softmax safesoftmax scaledmaskedsoftmax",
    "softmax_backward": "softmaxbackward softmaxbackwarddata scaledmaskedsoftmaxbackward",
    "log_softmax": "logsoftmax",
    "log_softmax_backward": "logsoftmaxbackward logsoftmaxbackwarddata",
    "layer_norm": "layernorm",
    "rms_norm": "rmsnorm fusedrmsnorm",
    "rms_norm_backward": "rmsnormbackward fusedrmsnormbackward",
    "add_rms_norm": "addrmsnorm fusedaddrmsnorm rmsnormadd",
    "add_layer_norm": "addlayernorm",
    "batch_norm": "batchnorm cudnnbatchnorm miopenbatchnorm",
    "batch_norm_backward": "batchnormbackward cudnnbatchnormbackward miopenbatchnormbackward",
    "rope": "rope rotarymul rotarypositionembedding applyrotaryposemb rotaryembedding interleaverope",
    "rope_backward": "ropebackward rotarymulbackward rotarypositionembeddingbackward",
    "swiglu": "swiglu siluandmul",
    "swiglu_backward": "swiglubackward",
    "geglu": "geglu geluandmul",
    "silu": "silu swish",
    "silu_backward": "silubackward swishbackward",
    "gelu": "gelu fastgelu",
    "gelu_backward": "gelubackward fastgelubackward",
    "relu": "relu clampmin",
    "relu_backward": "relubackward thresholdbackward",
    "copy": "copy tocopy to clone contiguous cast npudtypecast tensormove identity transpose",
    "fill": "fill zero zeros ones full zeroslike oneslike memset emptylike",
    "cat": "cat concat stack pack",
    "slice": "slice stridedslice split splitwithsizes splitv chunk narrow",
    "index_select": "indexselect embedding",
    "embedding_backward": "embeddingbackward embeddingdensebackward",
    "index_put": "indexput indexputimpl",
    "scatter": "scatter scatterelements scattersrc",
    "sum": "sum reducesum biasaddbackward convolutionbackwardbias",
    "mean": "mean reducemean",
    "amax": "amax max reducemax",
    "amin": "amin min reducemin",
    "all": "all reduceall",
    "any": "any reduceany",
    "prod": "prod reduceprod",
    "norm": "norm linalgvectornorm lpnorm",
    "add": "add adds axpy axpys biasadd addn accumulatenv",
    "sub": "sub subs rsub",
    "mul": "mul muls",
    "div": "div divs realdiv truedivide",
    "pow": "pow pows square",
    "where": "where select",
    "eq": "eq equal",
    "ne": "ne notequal",
    "lt": "lt less",
    "le": "le lessequal",
    "gt": "gt greater",
    "ge": "ge greaterequal",
    "max_pool2d": "maxpool2d maxpool2dwithindices maxpoolwithargmax maxpool",
    "max_pool2d_backward": "maxpool2dbackward maxpool2dwithindicesbackward maxpoolgradwithargmax maxpoolbackward",
    "adaptive_avg_pool": "adaptiveavgpool2d adaptiveavgpool3d",
    "adaptive_avg_pool_backward": "adaptiveavgpool2dbackward adaptiveavgpool3dbackward",
    "nll_loss": "nllloss nlllossforward nllloss2dforward",
    "nll_loss_backward": "nlllossbackward nllloss2dbackward",
    "cross_entropy": "crossentropyloss crossentropy softmaxcrossentropywithlogits",
    "dropout": "dropout fuseddropout npudropout dropoutdomask",
    "dropout_backward": "dropoutbackward npudropoutbackward maskedscale",
    "adam": "fusedadam applyadam",
    "adamw": "fusedadamw applyadamw",
    "foreach_add": "foreachadd foreachaddlist foreachaddscalar",
    "foreach_mul": "foreachmul foreachmullist foreachmulscalar",
    "foreach_sqrt": "foreachsqrt",
    "arange": "arange range",
}  # fmt: skip
_NAMES = {name: word for word, names in _WORDS.items() for name in names.split()}
# Types of CANN whose squeezed name aten gives to something else.
_OF_CANN = {"gather": "index_select", "gatherelements": "gather", "index": "index_select", "matmul": "mm"}
_VERSION = re.compile(r"v\d{1,2}$")
_FIXED = re.compile(r"(?<=[a-z])D$")  # "ConcatD": the same with attributes fixed when it is built
_UNATTRIBUTED = re.compile(r"^graph \d{1,9}, unattributed$")


@lru_cache(maxsize=8192)
def canonical(op: str | None, kernel: str, vendor: Vendor | None, formula: str | None = None) -> str | None:
    """The one name of an op: on Ascend by the kernel's type, elsewhere by the op; None where neither tells.

    ``formula`` names the part of an op that a kernel does, where one op launches several (convolution_backward_input).
    """
    if vendor is Vendor.ASCEND:
        return of_type(kernel)
    if op is None or unattributed(op):
        return None
    if formula is not None and formula.startswith("convolution_backward_"):
        return _NAMES.get(formula.replace("_", ""), formula)
    name = _squeezed(op[:LONGEST].rpartition("::")[2])
    return _NAMES.get(name, name) or None


@lru_cache(maxsize=8192)
def of_type(type_: str) -> str | None:
    """The same of a type of CANN: "MatMulV3" is mm, "SoftmaxGrad" is softmax_backward."""
    name = _VERSION.sub("", _FIXED.sub("", type_[:LONGEST]).lower().replace("_", ""))
    if name in _OF_CANN:
        return _OF_CANN[name]
    if name.endswith("grad"):
        name = f"{name[:-4]}backward"
    return _NAMES.get(name, name) or None


def unattributed(op: str) -> bool:
    """Whether it is no op, but says that a graph's kernel could be tied to none."""
    return _UNATTRIBUTED.match(op) is not None


def _squeezed(base: str) -> str:
    """An op's base name without underscores, "native" and the mark of working in place."""
    name = base.lower().replace("_", "")
    return name.removeprefix("native") if len(name) > len("native") else name
