#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mlxx/core/mlx.h"

namespace mlxx::apps {

// How a table of vectors is written.
enum class VectorFormat { json, raw, npy, safetensors };

// By its name, else by the ending of the file (.npy, .safetensors, .f32 and
// .bin), else json. invalid_request for a name that is none, and for
// safetensors without a file.
VectorFormat choose_vector_format(
    const std::string& name,
    const std::string& file);

// OpenAI's answer to a request for embeddings. internal for numbers that are
// not finite.
std::string embeddings_json(
    const mx::array& vectors,
    const std::string& model,
    int64_t tokens);

// Writes [N, E] float32 to `file`, or to standard output if it is empty: `raw`
// is little-endian numbers and nothing else; `npy` NumPy's format 1.0;
// safetensors one tensor, "embeddings".
void write_vectors(
    const mx::array& vectors,
    VectorFormat format,
    const std::string& file,
    const std::string& model,
    int64_t tokens);

}  // namespace mlxx::apps
