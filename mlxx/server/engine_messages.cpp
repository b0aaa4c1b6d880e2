#include "mlxx/server/engine_messages.h"

#include <optional>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "mlxx/api/answer.h"

namespace mlxx::server {

namespace {

// One list of fields for each struct serves both directions: `fields` calls
// the archive with each name and member.
class Writer;
class Reader;

template <typename Archive>
void fields(Archive& archive, generate::SamplingOptions& value) {
  archive("temperature", value.temperature);
  archive("top_p", value.top_p);
  archive("top_k", value.top_k);
  archive("min_p", value.min_p);
  archive("min_tokens_to_keep", value.min_tokens_to_keep);
  archive("xtc_probability", value.xtc_probability);
  archive("xtc_threshold", value.xtc_threshold);
  archive("xtc_special_tokens", value.xtc_special_tokens);
  archive("repetition_penalty", value.repetition_penalty);
  archive("repetition_context_size", value.repetition_context_size);
  archive("presence_penalty", value.presence_penalty);
  archive("frequency_penalty", value.frequency_penalty);
  archive("penalty_context_size", value.penalty_context_size);
  archive("logit_bias", value.logit_bias);
  archive("seed", value.seed);
}

template <typename Archive>
void fields(Archive& archive, engine::Constraint& value) {
  archive("kind", value.kind);
  archive("grammar", value.grammar);
}

template <typename Archive>
void fields(Archive& archive, engine::Reasoning& value) {
  archive("open", value.open);
  archive("begin", value.begin);
  archive("end", value.end);
  archive("budget", value.budget);
}

template <typename Archive>
void fields(Archive& archive, engine::Request& value) {
  archive("id", value.id);
  archive("model", value.model);
  archive("adapter", value.adapter);
  archive("prompt", value.prompt);
  archive("sampling", value.sampling);
  archive("max_tokens", value.max_tokens);
  archive("n", value.n);
  archive("stop", value.stop);
  archive("ignore_eos", value.ignore_eos);
  archive("visible_tokens", value.visible_tokens);
  archive("echo_logprobs", value.echo_logprobs);
  archive("top_logprobs", value.top_logprobs);
  archive("constraint", value.constraint);
  archive("reasoning", value.reasoning);
  archive("priority", value.priority);
  archive("tenant", value.tenant);
}

template <typename Archive>
void fields(Archive& archive, engine::Usage& value) {
  archive("prompt_tokens", value.prompt_tokens);
  archive("cached_tokens", value.cached_tokens);
  archive("completion_tokens", value.completion_tokens);
  archive("reasoning_tokens", value.reasoning_tokens);
  archive("queue_seconds", value.queue_seconds);
  archive("prefill_seconds", value.prefill_seconds);
  archive("decode_seconds", value.decode_seconds);
}

template <typename Archive>
void fields(Archive& archive, engine::TokenLogprob& value) {
  archive("t", value.token);
  archive("p", value.logprob);
}

template <typename Archive>
void fields(Archive& archive, engine::AnswerToken& value) {
  archive("t", value.token);
  archive("p", value.logprob);
  archive("top", value.top);
}

template <typename Archive>
void fields(Archive& archive, engine::Finish& value) {
  archive("reason", value.reason);
  archive("stop_sequence", value.stop_sequence);
  archive("usage", value.usage);
  archive("error", value.error);
}

template <typename Archive>
void fields(Archive& archive, engine::Event& value) {
  archive("choice", value.choice);
  archive("text", value.text);
  archive("tokens", value.tokens);
  archive("prompt", value.prompt);
  archive("finish", value.finish);
}

template <typename Archive>
void fields(Archive& archive, engine::EmbedRequest& value) {
  archive("model", value.model);
  archive("texts", value.texts);
  archive("token_lists", value.token_lists);
  archive("dimensions", value.dimensions);
  archive("normalize", value.normalize);
  archive("prompt", value.prompt);
  archive("prompt_name", value.prompt_name);
  archive("max_tokens", value.max_tokens);
}

template <typename Archive>
void fields(Archive& archive, engine::EmbedAnswer& value) {
  archive("vectors", value.vectors);
  archive("tokens", value.tokens);
  archive("dropped", value.dropped);
}

template <typename Archive>
void fields(Archive& archive, engine::RerankRequest& value) {
  archive("model", value.model);
  archive("query", value.query);
  archive("documents", value.documents);
  archive("raw_scores", value.raw_scores);
  archive("max_tokens", value.max_tokens);
}

template <typename Archive>
void fields(Archive& archive, engine::RerankAnswer& value) {
  archive("scores", value.scores);
  archive("tokens", value.tokens);
  archive("dropped", value.dropped);
}

template <typename Archive>
void fields(Archive& archive, engine::PrefixCacheStats& value) {
  archive("lookups", value.lookups);
  archive("hits", value.hits);
  archive("tokens_found", value.tokens_found);
  archive("evictions", value.evictions);
  archive("bytes", value.bytes);
  archive("entries", value.entries);
  archive("disk_hits", value.disk_hits);
  archive("disk_tokens_found", value.disk_tokens_found);
  archive("disk_bytes", value.disk_bytes);
  archive("disk_files", value.disk_files);
  archive("disk_queued", value.disk_queued);
  archive("disk_written", value.disk_written);
  archive("disk_evicted", value.disk_evicted);
  archive("disk_refused", value.disk_refused);
  archive("disk_problem", value.disk_problem);
}

template <typename Archive>
void fields(Archive& archive, engine::SourceStats& value) {
  archive("prefixes", value.prefixes);
  archive("memory_budget", value.memory_budget);
  archive("active_memory", value.active_memory);
  archive("pooled_memory", value.pooled_memory);
  archive("weights", value.weights);
  archive("rows", value.rows);
  archive("loaded_models", value.loaded_models);
  archive("loads", value.loads);
  archive("unloads", value.unloads);
}

template <typename Archive>
void fields(Archive& archive, engine::EngineStats& value) {
  archive("waiting", value.waiting);
  archive("prefilling", value.prefilling);
  archive("decoding", value.decoding);
  archive("finished", value.finished);
  archive("failed", value.failed);
  archive("cancelled", value.cancelled);
  archive("refused", value.refused);
  archive("prompt_tokens", value.prompt_tokens);
  archive("cached_tokens", value.cached_tokens);
  archive("generated_tokens", value.generated_tokens);
  archive("steps", value.steps);
  archive("step_seconds", value.step_seconds);
  archive("prefill_seconds", value.prefill_seconds);
  archive("healthy", value.healthy);
  archive("problem", value.problem);
  archive("source", value.source);
}

template <typename Archive>
void fields(Archive& archive, EngineState& value) {
  archive("ready", value.ready);
  archive("healthy", value.healthy);
  archive("problem", value.problem);
  archive("restarts", value.restarts);
  archive("is_final", value.is_final);
}

template <typename Archive>
void fields(Archive& archive, AdapterCommand& value) {
  archive("action", value.action);
  archive("model", value.model);
  archive("name", value.name);
  archive("folder", value.folder);
}

template <typename Archive>
void fields(Archive& archive, engine::AdapterEntry& value) {
  archive("model", value.model);
  archive("name", value.name);
  archive("folder", value.folder);
  archive("format", value.format);
  archive("dora", value.dora);
  archive("rank", value.rank);
  archive("modules", value.modules);
  archive("bytes", value.bytes);
}

template <typename Archive>
void fields(Archive& archive, AdapterAnswer& value) {
  archive("entries", value.entries);
}

template <typename T, typename Archive>
concept HasFields =
    requires(Archive& archive, T& value) { fields(archive, value); };

class Writer {
 public:
  template <typename T>
  void operator()(const char* name, T& value) {
    json_[name] = write(value);
  }
  template <typename T>
  static Json write(T& value) {
    if constexpr (std::is_enum_v<T>) {
      return static_cast<int>(value);
    } else if constexpr (std::is_same_v<T, std::shared_ptr<const Error>>) {
      return value ? error_to_message(*value) : Json();
    } else if constexpr (HasFields<T, Writer>) {
      Writer writer;
      fields(writer, value);
      return std::move(writer.json_);
    } else if constexpr (requires { value.has_value(); }) {
      return value ? write(*value) : Json();
    } else if constexpr (requires { typename T::value_type; }) {
      if constexpr (HasFields<typename T::value_type, Writer>) {
        Json list = Json::array();
        for (auto& item : value) {
          list.push_back(write(item));
        }
        return list;
      } else {
        return value;
      }
    } else {
      return value;
    }
  }

 private:
  Json json_ = Json::object();
};

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  template <typename T>
  void operator()(const char* name, T& value) {
    read(json_.at(name), value);
  }
  template <typename T>
  static void read(const Json& json, T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(json.get<int>());
    } else if constexpr (std::is_same_v<T, std::shared_ptr<const Error>>) {
      value = json.is_null() ? nullptr : error_from_message(json);
    } else if constexpr (HasFields<T, Reader>) {
      Reader reader(json);
      fields(reader, value);
    } else if constexpr (requires { value.has_value(); }) {
      value.reset();
      if (!json.is_null()) {
        read(json, value.emplace());
      }
    } else if constexpr (requires { typename T::value_type; }) {
      if constexpr (HasFields<typename T::value_type, Reader>) {
        for (const auto& item : json) {
          read(item, value.emplace_back());
        }
      } else {
        json.get_to(value);
      }
    } else {
      json.get_to(value);
    }
  }

 private:
  const Json& json_;
};

}  // namespace

template <typename T>
Json to_message(const T& value) {
  // The fields are only read.
  return Writer::write(const_cast<T&>(value));
}

template <typename T>
T from_message(const Json& message) {
  T value;
  Reader::read(message, value);
  return value;
}

template Json to_message(const engine::Request&);
template Json to_message(const engine::Event&);
template Json to_message(const engine::EmbedRequest&);
template Json to_message(const engine::EmbedAnswer&);
template Json to_message(const engine::RerankRequest&);
template Json to_message(const engine::RerankAnswer&);
template Json to_message(const engine::EngineStats&);
template Json to_message(const EngineState&);
template Json to_message(const AdapterCommand&);
template Json to_message(const AdapterAnswer&);

template engine::Request from_message(const Json&);
template engine::Event from_message(const Json&);
template engine::EmbedRequest from_message(const Json&);
template engine::EmbedAnswer from_message(const Json&);
template engine::RerankRequest from_message(const Json&);
template engine::RerankAnswer from_message(const Json&);
template engine::EngineStats from_message(const Json&);
template EngineState from_message(const Json&);
template AdapterCommand from_message(const Json&);
template AdapterAnswer from_message(const Json&);

Json error_to_message(const std::exception& error) {
  Json message = {{"text", error.what()}};
  auto* known = dynamic_cast<const Error*>(&error);
  message["kind"] =
      static_cast<int>(known ? known->kind() : ErrorKind::internal);
  if (auto* busy = dynamic_cast<const engine::Busy*>(&error)) {
    message["retry_after"] = busy->retry_after_seconds();
    message["queue_full"] = busy->queue_full();
  }
  if (auto* refusal = dynamic_cast<const api::RequestError*>(&error)) {
    message["status"] = refusal->status();
    message["param"] = refusal->param();
    message["code"] = refusal->code();
  }
  return message;
}

std::shared_ptr<const Error> error_from_message(const Json& message) {
  auto text = message.at("text").get<std::string>();
  if (message.contains("retry_after")) {
    return std::make_shared<engine::Busy>(
        text,
        message.at("retry_after").get<int>(),
        message.at("queue_full").get<bool>());
  }
  if (message.contains("status")) {
    return std::make_shared<api::RequestError>(
        message.at("status").get<int>(),
        text,
        message.at("param").get<std::string>(),
        message.at("code").get<std::string>());
  }
  return std::make_shared<Error>(
      static_cast<ErrorKind>(message.at("kind").get<int>()),
      text);
}

std::exception_ptr to_exception(const std::shared_ptr<const Error>& error) {
  if (!error) {
    return nullptr;
  }
  if (auto* busy = dynamic_cast<const engine::Busy*>(error.get())) {
    return std::make_exception_ptr(*busy);
  }
  if (auto* refusal = dynamic_cast<const api::RequestError*>(error.get())) {
    return std::make_exception_ptr(*refusal);
  }
  return std::make_exception_ptr(*error);
}

}  // namespace mlxx::server
