#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/error.h"
#include "mlxx/generate/sampling.h"
#include "mlxx/text/grammar.h"

// What goes into the engine and what comes out of it. Nothing here knows of
// arrays or of HTTP.
namespace mlxx::engine {

// What the text of an answer must follow, from its first token on or, if the
// model reasons first, from the end of its reasoning on.
struct Constraint {
  text::GrammarKind kind = text::GrammarKind::json_schema;
  std::string grammar;
};

// How a model marks its reasoning, and how much of it is wanted.
struct Reasoning {
  bool open = false;  // the prompt ends inside of it
  std::string begin;  // "<think>"
  std::string end;    // "</think>"
  // Tokens of reasoning, after which `end` is forced. Absent: no limit.
  std::optional<int> budget;
};

struct Request {
  std::string id;       // for logs and metrics
  std::string model;    // a name of the ModelSource
  std::string adapter;  // "" for none, "a+b" for several at once
  std::vector<int32_t> prompt;
  generate::SamplingOptions sampling;  // of choice 0; see choice_seed()
  int max_tokens = 0;
  int n = 1;                      // choices; the prompt is computed once
  std::vector<std::string> stop;  // text ends just before the earliest match
  bool ignore_eos = false;
  // Control tokens that show in the text as they are written, instead of being
  // dropped: markup of tool calls and reasoning.
  std::vector<std::string> visible_tokens;
  bool echo_logprobs = false;  // log-probabilities of the prompt's tokens too
  // How many likeliest tokens to report beside each chosen one. Absent: no
  // log-probabilities at all.
  std::optional<int> top_logprobs;
  std::optional<Constraint> constraint;
  std::optional<Reasoning> reasoning;
  int priority = 0;  // higher first; equal ones in turn
  // Whose share of the machine it is (fairness); "" is one party too.
  std::string tenant;
};

// Seed of one choice: those of one request differ, and each is the same
// whatever else runs.
int64_t choice_seed(int64_t seed, int choice);

enum class FinishReason { stop, length, cancelled, error };
std::string_view to_string(FinishReason reason);

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;      // of the prompt, found in the prefix cache
  int completion_tokens = 0;  // sampled, EOS included
  int reasoning_tokens = 0;   // of those, before the reasoning ended
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// Log-probabilities are those of the model before penalties and filters.
struct AnswerToken {
  int32_t token = 0;
  float logprob = 0;              // 0 unless asked for
  std::vector<TokenLogprob> top;  // likeliest first
};

struct Finish {
  FinishReason reason = FinishReason::stop;
  std::string stop_sequence;  // the stop string that matched, if one did
  Usage usage;                // of this choice; prompt_tokens in each
  std::shared_ptr<const Error> error;  // of FinishReason::error
};

// One piece of one choice. The texts of a choice concatenated are its answer;
// a token may come before its text is certain.
struct Event {
  int choice = 0;
  std::string text;                 // valid UTF-8; may be empty
  std::vector<AnswerToken> tokens;  // since the last event, without the EOS
  // Only before the first token: the prompt's tokens, if echo_logprobs. The
  // first one has no probability: NaN.
  std::vector<AnswerToken> prompt;
  std::optional<Finish> finish;  // the last event of its choice
};

// Called on the engine's thread; must not block, throw or call the engine.
using Sink = std::function<void(Event)>;

// The engine has no room now: status 429 or 503, with Retry-After.
class Busy : public Error {
 public:
  Busy(std::string_view message, int retry_after_seconds, bool queue_full)
      : Error(ErrorKind::out_of_memory, message),
        retry_after_seconds_(retry_after_seconds),
        queue_full_(queue_full) {}

  int retry_after_seconds() const {
    return retry_after_seconds_;
  }
  // True: too many requests wait (429). False: it is stopping, loading or
  // broken (503).
  bool queue_full() const {
    return queue_full_;
  }

 private:
  int retry_after_seconds_;
  bool queue_full_;
};

}  // namespace mlxx::engine
