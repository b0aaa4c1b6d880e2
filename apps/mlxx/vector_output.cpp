#include "apps/mlxx/vector_output.h"

#include <bit>
#include <cmath>
#include <iterator>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/mlxx/console.h"
#include "mlxx/base/atomic_file.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/core/safetensors_writer.h"

namespace mlxx::apps {
namespace {

static_assert(std::endian::native == std::endian::little);

std::string_view bytes_of(const mx::array& vectors) {
  return {
      reinterpret_cast<const char*>(vectors.data<float>()),
      vectors.nbytes()};
}

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
std::string npy_header(const mx::array& vectors) {
  constexpr size_t kAlignment = 64;
  constexpr size_t kPreamble = 10;  // magic, version, length of the rest
  std::string header = fmt::format(
      "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}",
      vectors.shape(0),
      vectors.shape(1));
  size_t whole =
      (kPreamble + header.size() + kAlignment) / kAlignment * kAlignment;
  header.resize(whole - kPreamble - 1, ' ');
  header += '\n';
  std::string start("\x93NUMPY\x01\x00", 8);
  start += static_cast<char>(header.size() & 0xff);
  start += static_cast<char>(header.size() >> 8);
  return start + header;
}

}  // namespace

VectorFormat choose_vector_format(
    const std::string& name,
    const std::string& file) {
  VectorFormat format = VectorFormat::json;
  if (name == "npy" || (name.empty() && file.ends_with(".npy"))) {
    format = VectorFormat::npy;
  } else if (
      name == "safetensors" ||
      (name.empty() && file.ends_with(".safetensors"))) {
    format = VectorFormat::safetensors;
  } else if (
      name == "raw" ||
      (name.empty() && (file.ends_with(".f32") || file.ends_with(".bin")))) {
    format = VectorFormat::raw;
  } else if (!name.empty() && name != "json") {
    fail(
        ErrorKind::invalid_request,
        "--format",
        "'{}' is not json, raw, npy or safetensors",
        name);
  }
  if (format == VectorFormat::safetensors && file.empty()) {
    fail(ErrorKind::invalid_request, "--format", "safetensors needs --output");
  }
  return format;
}

std::string embeddings_json(
    const mx::array& vectors,
    const std::string& model,
    int64_t tokens) {
  std::string text = R"({"object": "list", "data": [)";
  auto out = std::back_inserter(text);
  int width = vectors.shape(1);
  const float* at = vectors.data<float>();
  for (int i = 0; i < vectors.shape(0); ++i) {
    fmt::format_to(
        out,
        R"({}{{"object": "embedding", "index": {}, "embedding": [)",
        i > 0 ? ",\n" : "\n",
        i);
    for (int j = 0; j < width; ++j, ++at) {
      if (!std::isfinite(*at)) {
        fail(
            ErrorKind::internal,
            fmt::format("embedding {}", i),
            "number {} is {}",
            j,
            *at);
      }
      // The shortest text that reads as the same float.
      fmt::format_to(out, "{}{}", j > 0 ? "," : "", *at);
    }
    text += "]}";
  }
  fmt::format_to(
      out,
      "],\n\"model\": {}, \"usage\": {{\"prompt_tokens\": {}, "
      "\"total_tokens\": {}}}}}\n",
      Json(model).dump(-1, ' ', false, Json::error_handler_t::replace),
      tokens,
      tokens);
  return text;
}

void write_vectors(
    const mx::array& vectors,
    VectorFormat format,
    const std::string& file,
    const std::string& model,
    int64_t tokens) {
  if (format == VectorFormat::safetensors) {
    write_safetensors(file, {{"embeddings", vectors}});
    return;
  }
  std::string start;
  std::string_view body;
  if (format == VectorFormat::json) {
    start = embeddings_json(vectors, model, tokens);
  } else {
    start = format == VectorFormat::npy ? npy_header(vectors) : "";
    body = bytes_of(vectors);
  }
  if (file.empty()) {
    print(start);
    print(body);
    return;
  }
  AtomicFile out(file);
  out.write(std::span(start.data(), start.size()));
  out.write(std::span(body.data(), body.size()));
  out.commit();
}

}  // namespace mlxx::apps
