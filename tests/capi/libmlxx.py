"""mlxx.h for ctypes: the structs, and a library whose failures are exceptions."""
import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint64, c_void_p

(OK, INVALID_REQUEST, UNSUPPORTED, NOT_FOUND, BAD_FILE, OUT_OF_MEMORY, CANCELLED,
 INTERNAL) = range(8)
FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED = range(4)
ADD_SPECIAL, PLAIN_TEXT = 1, 2

TextCallback = ctypes.CFUNCTYPE(c_int, c_char_p, c_size_t, c_void_p)


class Sized(ctypes.Structure):
    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(type(self)))
        for name, value in {**self.defaults, **fields}.items():
            setattr(self, name, value)


class ModelOptions(Sized):
    c_name, defaults = "mlxx_model_options", {}
    _fields_ = [("size", c_size_t), ("chat_template", c_char_p), ("context_length", c_int32),
                ("reserved", c_int32)]


class ModelInfo(Sized):
    c_name, defaults = "mlxx_model_info", {}
    _fields_ = [("size", c_size_t), ("parameters", c_uint64), ("weight_bytes", c_uint64),
                ("file_bytes", c_uint64), ("context_length", c_int32), ("vocab_size", c_int32),
                ("tokenizer_size", c_int32), ("layers", c_int32), ("hidden_size", c_int32),
                ("bos_token", c_int32), ("has_chat_template", c_int32), ("reserved", c_int32),
                ("architecture", ctypes.c_char * 64), ("format", ctypes.c_char * 16)]


class Chat(Sized):
    c_name, defaults = "mlxx_chat", {}
    _fields_ = [("size", c_size_t), ("messages", c_char_p), ("tools", c_char_p),
                ("variables", c_char_p), ("continue_final_message", c_int32),
                ("no_generation_prompt", c_int32)]


class GenerateOptions(Sized):
    c_name = "mlxx_generate_options"
    defaults = {"seed": -1, "max_tokens": 256, "top_p": 1.0, "min_tokens_to_keep": 1,
                "xtc_threshold": 0.1, "repetition_context_size": 20, "penalty_context_size": 20,
                "prefill_step_size": 2048}
    _fields_ = [("size", c_size_t), ("chat", POINTER(Chat)), ("tokens", POINTER(c_int32)),
                ("token_count", c_size_t), ("system_prompt", c_char_p), ("cancel", c_void_p),
                ("stop", POINTER(c_char_p)), ("stop_count", c_size_t),
                ("logit_bias_tokens", POINTER(c_int32)), ("logit_bias_values", POINTER(c_float)),
                ("logit_bias_count", c_size_t), ("seed", c_int64), ("raw", c_int32),
                ("max_tokens", c_int32), ("temperature", c_float), ("top_p", c_float),
                ("top_k", c_int32), ("min_p", c_float), ("min_tokens_to_keep", c_int32),
                ("xtc_probability", c_float), ("xtc_threshold", c_float),
                ("repetition_penalty", c_float), ("repetition_context_size", c_int32),
                ("presence_penalty", c_float), ("frequency_penalty", c_float),
                ("penalty_context_size", c_int32), ("max_kv_size", c_int32),
                ("prefill_step_size", c_int32), ("ignore_eos", c_int32),
                ("compile_decode", c_int32)]


class GenerateResult(Sized):
    c_name, defaults = "mlxx_generate_result", {}
    _fields_ = [("size", c_size_t), ("seed", c_int64), ("prefill_seconds", c_double),
                ("decode_seconds", c_double), ("peak_memory_bytes", c_uint64),
                ("prompt_tokens", c_int32), ("generated_tokens", c_int32), ("finish", c_int32),
                ("stop_index", c_int32)]


class EmbedderInfo(Sized):
    c_name, defaults = "mlxx_embedder_info", {}
    _fields_ = [("size", c_size_t), ("dimensions", c_int32), ("max_tokens", c_int32),
                ("layers", c_int32), ("hidden_size", c_int32), ("normalizes", c_int32),
                ("reserved", c_int32), ("architecture", ctypes.c_char * 64),
                ("pooling", ctypes.c_char * 16)]


class EmbedOptions(Sized):
    c_name, defaults = "mlxx_embed_options", {"normalize": -1}
    _fields_ = [("size", c_size_t), ("prompt", c_char_p), ("prompt_name", c_char_p),
                ("normalize", c_int32), ("max_tokens", c_int32), ("dimensions", c_int32),
                ("reserved", c_int32)]


class EmbedResult(Sized):
    c_name, defaults = "mlxx_embed_result", {}
    _fields_ = [("size", c_size_t), ("tokens", c_int64), ("dropped", c_int64),
                ("texts_cut", c_int32), ("reserved", c_int32)]


class RerankOptions(Sized):
    c_name, defaults = "mlxx_rerank_options", {}
    _fields_ = [("size", c_size_t), ("max_tokens", c_int32), ("raw_scores", c_int32)]


class Memory(Sized):
    c_name, defaults = "mlxx_memory", {}
    _fields_ = [("size", c_size_t), ("active", c_uint64), ("cache", c_uint64),
                ("peak", c_uint64)]


class Options(Sized):
    c_name, defaults = "mlxx_options", {}
    _fields_ = [("size", c_size_t), ("libmlx", c_char_p), ("blas", c_char_p)]


STRUCTS = (Options, ModelOptions, ModelInfo, Chat, GenerateOptions, GenerateResult, EmbedderInfo,
           EmbedOptions, EmbedResult, RerankOptions, Memory)


class MlxxError(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Library:
    """Calls as library.model_open(...): MlxxError where the status is not OK."""

    ARGUMENTS = {
        "init": [POINTER(Options)],
        "model_open": [c_char_p, POINTER(ModelOptions), POINTER(c_void_p)],
        "model_close": [c_void_p],
        "model_get_info": [c_void_p, POINTER(ModelInfo)],
        "tokenize": [c_void_p, c_char_p, c_size_t, c_int, POINTER(c_int32), c_size_t,
                     POINTER(c_size_t)],
        "detokenize": [c_void_p, POINTER(c_int32), c_size_t, c_int, c_char_p, c_size_t,
                       POINTER(c_size_t)],
        "apply_chat_template": [c_void_p, POINTER(Chat), c_char_p, c_size_t, POINTER(c_size_t)],
        "cancel_open": [POINTER(c_void_p)],
        "cancel_request": [c_void_p],
        "cancel_close": [c_void_p],
        "generate": [c_void_p, c_char_p, POINTER(GenerateOptions), TextCallback, c_void_p,
                     POINTER(GenerateResult)],
        "embedder_open": [c_char_p, POINTER(c_void_p)],
        "embedder_close": [c_void_p],
        "embedder_get_info": [c_void_p, POINTER(EmbedderInfo)],
        "embed": [c_void_p, POINTER(c_char_p), c_size_t, POINTER(EmbedOptions), POINTER(c_float),
                  c_size_t, POINTER(c_size_t), POINTER(EmbedResult)],
        "reranker_open": [c_char_p, POINTER(c_void_p)],
        "reranker_close": [c_void_p],
        "rerank": [c_void_p, c_char_p, POINTER(c_char_p), c_size_t, POINTER(RerankOptions),
                   POINTER(c_float), c_size_t, POINTER(c_size_t), POINTER(EmbedResult)],
        "memory_get": [POINTER(Memory)],
        "memory_reset_peak": [],
        "memory_clear_cache": [],
    }

    def __init__(self, path):
        library = ctypes.CDLL(path)
        library.mlxx_last_error.restype = c_char_p
        self.last_error = lambda: library.mlxx_last_error().decode()
        for name, arguments in self.ARGUMENTS.items():
            function = getattr(library, f"mlxx_{name}")
            function.argtypes = arguments
            setattr(self, name, self.checked(function))

    def checked(self, function):
        def call(*arguments):
            status = function(*arguments)
            if status != OK:
                raise MlxxError(status, self.last_error())
        return call
