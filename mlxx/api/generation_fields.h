#pragma once

#include <optional>
#include <span>
#include <string>

#include "mlxx/api/answer.h"
#include "mlxx/api/field_reader.h"
#include "mlxx/engine/request.h"

namespace mlxx::api {

// What kSamplingFields say, over the model's own defaults.
generate::SamplingOptions read_sampling(
    const FieldReader& fields,
    const Context& context);

// What kGenerationFields say, but for the constraint and for max_tokens.
struct Generation {
  engine::Request request;  // all but prompt, room and what chat adds
  bool stream = false;
  bool include_usage = false;
  std::optional<int> max_tokens;  // as asked for; -1: all there is
};
Generation read_generation(const FieldReader& fields, const Context& context);

// "adapters": "a+b"; "" for none.
std::string read_adapter(const FieldReader& fields);

// 400 for a model that makes only vectors.
void require_answers(const engine::ModelText& model);

// 400 with code context_length_exceeded for texts that are certainly too long
// for the context, without reading all of them: tokens of a text take time, and
// a body may be 10,000 contexts long.
void check_text_length(
    std::span<const std::string_view> texts,
    const engine::ModelText& model,
    std::string_view param);

// So much of the beginning of a text that it has more tokens than the context:
// for what is cut off there anyway.
std::string_view beginning_of_text(
    std::string_view text,
    const engine::ModelText& model);

// "stop" or another name of it: a string or a list.
std::vector<std::string> read_stop(
    const FieldReader& fields,
    std::string_view name,
    const Limits& limits);

// Sets request.max_tokens for its prompt: what was asked for, or the default,
// within the operator's limit and what is left of the context. 400 with code
// context_length_exceeded for a prompt that leaves no room; `param` is its
// field.
void set_room(
    engine::Request& request,
    std::optional<int> asked,
    const Context& context,
    std::string_view param);

}  // namespace mlxx::api
