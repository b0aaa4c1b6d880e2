#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlxx/engine/model_text.h"
#include "mlxx/engine/request.h"
#include "mlxx/engine/source_stats.h"

// What the scheduler asks of models. No arrays in these interfaces: tests of
// the scheduler run with a fake that needs no MLX.
namespace mlxx::engine {

// How one row chooses its tokens.
struct RowSettings {
  generate::SamplingOptions sampling;  // validated
  int64_t seed = 0;
  std::optional<int> top_logprobs;
  std::string adapter;
};

// One sequence inside of a runner. Owned by the scheduler, used only by the
// runner that made it.
class Row {
 public:
  virtual ~Row() = default;
};

// A decode step that was handed to the device.
class Step {
 public:
  virtual ~Step() = default;
};

struct Chosen {
  AnswerToken token;
  bool finite = true;  // the logits were
};

// Bit i of word w allows the token 32 w + i; empty: everything is allowed.
using TokenMask = std::vector<uint32_t>;

// One loaded model. Every call from the engine's thread.
class Runner {
 public:
  virtual ~Runner() = default;

  virtual std::shared_ptr<const ModelText> text() const = 0;
  virtual int vocab_size() const = 0;  // width of the logits

  struct Opened {
    std::unique_ptr<Row> row;
    int cached_tokens = 0;  // of the prompt, already computed: less than all
  };
  // A row that continues `prompt` (not empty, ids in range). not_found for an
  // adapter that is not mounted.
  virtual Opened open(
      std::span<const int32_t> prompt,
      const RowSettings& settings) = 0;
  // A row with the same tokens, sharing what is computed; the original must be
  // fully prefilled and not yet stepped.
  virtual std::unique_ptr<Row> fork(
      const Row& row,
      const RowSettings& settings) = 0;

  // Computes up to `tokens` more tokens of the prompt, but never its last one
  // (the first step feeds it), and waits for them. Returns how many are left,
  // the last one not counted.
  virtual int prefill(Row& row, int tokens) = 0;

  // Tokens of a prompt that take hardly longer than fewer of them: fewer are
  // not computed between decode steps unless a prompt ends. With less than 16
  // the weights are read for too little.
  virtual int least_chunk() const {
    return 16;
  }
  // Whether prompts of several rows are worth computing together.
  virtual bool joins_prompts() const {
    return false;
  }
  // As prefill() of all that is left for each of several rows, in one pass;
  // they hold equally many tokens. False, and nothing is done, where they don't
  // go together.
  virtual bool prefill_together(std::span<Row* const> /* rows */) {
    return false;
  }

  // Feeds every row its newest token (one that was chosen in the step before
  // need not have been read) and hands the computation of the logits to the
  // device. Does not wait.
  virtual std::unique_ptr<Step> begin(std::span<Row* const> rows) = 0;
  // Chooses one token for each row of the step, in one graph. `masks`: one
  // for each row, or none at all. Does not wait.
  virtual void choose(Step& step, std::span<const TokenMask> masks) = 0;
  // Waits; in the order of the rows.
  virtual std::vector<Chosen> read(Step& step) = 0;

  // Log-probabilities of the tokens of a prompt, for echo; runs at once.
  virtual std::vector<AnswerToken> prompt_logprobs(
      std::span<const int32_t> prompt,
      int top,
      const std::string& adapter) = 0;

  // The row is done. `tokens`: prompt and answer as far as they were read; its
  // state may serve later prompts that begin with them. Empty: forget it (it
  // may be damaged).
  virtual void close(
      std::unique_ptr<Row> row,
      std::span<const int32_t> tokens) = 0;
};

// Memory that a request holds while it runs; given back when it dies.
class Lease {
 public:
  virtual ~Lease() = default;
};

class VectorSource;
class AdapterList;

// The models there are. Engine's thread, unless said otherwise.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  // Loads it if need be; others that nobody holds may be unloaded for it. The
  // caller holds it as long as it has rows. Errors: not_found (no such name),
  // out_of_memory, bad_file.
  virtual std::shared_ptr<Runner> runner(const std::string& model) = 0;

  // For the start of a server. Loads it, whatever it makes, with all that was
  // given for it.
  virtual void load_first(const std::string& model) {
    runner(model);
  }
  // Throws what loading it would throw, as far as its files tell.
  virtual void check(const std::string& /* model */) {}

  // Room for a request, before anything of it is computed. Nothing: it does not
  // fit now and will when others are done. out_of_memory with the place
  // "memory_admission" and the numbers if it never will. `alone`: nothing else
  // runs, so that waiting would be for ever.
  virtual std::unique_ptr<Lease>
  admit(Runner& runner, const Request& request, bool alone) = 0;

  // What its models and what is kept of prompts take now.
  virtual SourceStats source_stats() const {
    return {};
  }
  // Forgets what is kept of prompts, in memory and on disk. Running rows go on.
  virtual void clear_prefixes() {}

  // Called when a step is done and about once a second when there is nothing
  // to do: idle models are unloaded, pools emptied, caches written.
  virtual void tick() {}

  // Those of its models that make vectors and scores (vectors.h); null: none.
  virtual VectorSource* vectors() {
    return nullptr;
  }
  // Mounting and unmounting (adapter_list.h); null: it has no adapters.
  virtual AdapterList* adapters() {
    return nullptr;
  }
};

}  // namespace mlxx::engine
