#include "mlxx/engine/model_runner.h"

#include <algorithm>

#include "mlxx/base/log.h"
#include "mlxx/cache/shared_copies.h"
#include "mlxx/core/memory.h"
#include "mlxx/core/mlx_errors.h"
#include "mlxx/engine/batch_sampler.h"
#include "mlxx/engine/fed_tokens.h"
#include "mlxx/engine/model_row.h"
#include "mlxx/engine/prompt_logprobs.h"
#include "mlxx/generate/logits_processors.h"
#include "mlxx/generate/token_choices.h"
#include "mlxx/models/fused_decoder.h"

namespace mlxx::engine {
namespace {

// Buffers of outgrown caches and the like go back to the system this often.
constexpr int kClearInterval = 256;

const std::shared_ptr<StepState>& state_of(const Step& step) {
  const auto* own = dynamic_cast<const ModelStep*>(&step);
  if (!own) {
    fail(ErrorKind::internal, "rows", "a step of another runner");
  }
  return own->state;
}

// The newline and the EOS tokens, which mlx-lm's programs keep from xtc.
void set_xtc_special_tokens(RowSettings& settings, const ModelText& text) {
  generate::SamplingOptions& sampling = settings.sampling;
  if (sampling.xtc_probability == 0 || sampling.xtc_special_tokens) {
    return;
  }
  std::vector<int32_t> ids =
      text.tokenizer ? text.tokenizer->encode("\n") : std::vector<int32_t>{};
  ids.insert(ids.end(), text.eos_ids.begin(), text.eos_ids.end());
  std::erase_if(ids, [&](int32_t id) {
    return id < 0 || id >= text.vocab_size;
  });
  sampling.xtc_special_tokens = std::move(ids);
}

// The tokens before the one that was fed last, as many as penalties see.
std::vector<int32_t> recent_tokens(const RowState& row, int window) {
  // Of a long context only the end is copied.
  size_t most = window > 0 ? static_cast<size_t>(window) : row.tokens.size();
  auto first = row.tokens.end() -
      static_cast<ptrdiff_t>(std::min(most, row.tokens.size()));
  std::vector<int32_t> known(first, row.tokens.end());
  for (const auto& unread : row.unread) {
    if (&unread != &row.unread.back()) {
      known.push_back(token_at(unread.tokens, unread.index));
    }
  }
  if (row.unread.empty()) {
    known.pop_back();
  }
  size_t wanted = window > 0 ? static_cast<size_t>(window) - 1 : known.size();
  if (known.size() > wanted) {
    known.erase(known.begin(), known.end() - static_cast<ptrdiff_t>(wanted));
  }
  return known;
}

}  // namespace

ModelRunner::ModelRunner(
    std::shared_ptr<const models::Model> model,
    std::shared_ptr<const ModelText> text,
    ModelRunnerOptions options)
    : model_(std::move(model)),
      text_(std::move(text)),
      options_(std::move(options)),
      kernels_(
          options_.kernels ? *options_.kernels : generate::sampling_kernels()),
      adapters_(model_, kernels_),
      vocab_size_(model_->summary().vocab_size) {
  if (options_.prefixes && !options_.states_identity.empty()) {
    options_.prefixes->keep_on_disk(
        options_.space,
        options_.states_identity,
        [model = model_] { return model->make_cache({}); });
  }
}

// States without their model are of no use.
ModelRunner::~ModelRunner() {
  if (!options_.prefixes) {
    return;
  }
  try {
    options_.prefixes->close(options_.space);
    for (const std::string& space : adapter_spaces_) {
      options_.prefixes->close(space);
    }
  } catch (const std::exception& error) {
    log_warning("[prompt cache] not all is on disk: {}", error.what());
  }
}

std::string ModelRunner::space_of(const adapters::AdapterStack* adapters) {
  if (!adapters) {
    return options_.space;
  }
  std::string space =
      fmt::format("{}\n{}", options_.space, adapters->identity());
  adapter_spaces_.insert(space);
  return space;
}

cache::CacheList ModelRunner::make_cache(
    const adapters::AdapterStack* adapters) const {
  cache::CacheList caches = model_->make_cache({});
  if (adapters &&
      !(models::FusedDecoder::made(caches) && adapters->fits_program())) {
    models::CacheOptions options;
    options.per_layer = true;
    return model_->make_cache(options);
  }
  return caches;
}

// [B, V]: all rows in one pass, but for those with adapters that run layer by
// layer: these in another one.
mx::array ModelRunner::logits_of(
    const mx::array& fed,
    std::span<const std::shared_ptr<RowState>> rows) const {
  std::vector<int> together;
  std::vector<int> apart;
  for (int row = 0; row < static_cast<int>(rows.size()); ++row) {
    const RowState& state = *rows[static_cast<size_t>(row)];
    bool joins = !state.adapters || models::FusedDecoder::made(state.caches);
    (joins ? together : apart).push_back(row);
  }
  // Equal adapters next to each other.
  std::ranges::stable_sort(apart, {}, [&](int row) {
    return rows[static_cast<size_t>(row)]->space;
  });
  auto pass = [&](std::span<const int> chosen) {
    std::vector<cache::CacheList*> caches;
    std::vector<std::shared_ptr<const adapters::AdapterStack>> stacks;
    bool any = false;
    for (int row : chosen) {
      RowState& state = *rows[static_cast<size_t>(row)];
      caches.push_back(&state.caches);
      stacks.push_back(state.adapters);
      any |= state.adapters != nullptr;
    }
    bool all = chosen.size() == rows.size() && std::ranges::is_sorted(chosen);
    mx::array tokens = all ? fed
                           : mx::take(
                                 fed,
                                 mx::array(
                                     chosen.begin(),
                                     {static_cast<int>(chosen.size())},
                                     mx::int32));
    auto adapters = adapters::adapters_of_rows(std::move(stacks));
    nn::AdapterScope scope(any ? adapters.get() : nullptr);
    return model_->forward_rows(tokens, caches);
  };
  if (apart.empty()) {
    return pass(together);
  }
  std::vector<mx::array> parts;
  if (!together.empty()) {
    parts.push_back(pass(together));
  }
  parts.push_back(pass(apart));
  std::vector<int> back(rows.size());
  int place = 0;
  for (const auto* passed : {&together, &apart}) {
    for (int row : *passed) {
      back[static_cast<size_t>(row)] = place++;
    }
  }
  return mx::take(
      mx::concatenate(std::move(parts), 0),
      mx::array(back.begin(), {static_cast<int>(back.size())}, mx::int32),
      0);
}

void ModelRunner::check_prompt(std::span<const int32_t> prompt) const {
  if (prompt.empty()) {
    fail(ErrorKind::invalid_request, "prompt", "has no tokens");
  }
  for (int32_t id : prompt) {
    if (id < 0 || id >= vocab_size_) {
      fail(
          ErrorKind::invalid_request,
          "prompt",
          "token id {} is outside the model's vocabulary of {}",
          id,
          vocab_size_);
    }
  }
}

void ModelRunner::remember(
    const std::string& space,
    std::span<const int32_t> tokens,
    const cache::CacheList& caches) {
  if (options_.prefixes && !tokens.empty()) {
    options_.prefixes->insert(space, tokens, caches);
  }
}

Runner::Opened ModelRunner::open(
    std::span<const int32_t> prompt,
    const RowSettings& settings) {
  auto stack = adapters_.find(settings.adapter);
  std::string space = space_of(stack.get());
  check_prompt(prompt);
  return with_mlx_errors("open", [&]() -> Opened {
    auto row = std::make_shared<RowState>();
    row->settings = settings;
    set_xtc_special_tokens(row->settings, *text_);
    row->adapters = stack;
    row->space = space;
    row->tokens.assign(prompt.begin(), prompt.end());
    row->prompt_tokens = static_cast<int>(prompt.size());
    std::optional<PrefixCache::Hit> hit;
    if (options_.prefixes) {
      hit = options_.prefixes->find(space, prompt);
    }
    if (hit) {
      row->caches = std::move(hit->caches);
      row->computed = hit->tokens;
    } else {
      row->caches = make_cache(stack.get());
    }
    int cached = row->computed;
    return {std::make_unique<ModelRow>(std::move(row)), cached};
  });
}

std::unique_ptr<Row> ModelRunner::fork(
    const Row& row,
    const RowSettings& settings) {
  const RowState& from = *state_of(row);
  auto stack = settings.adapter == from.settings.adapter
      ? from.adapters
      : adapters_.find(settings.adapter);
  std::string space = space_of(stack.get());
  if (from.chosen > 0 || from.computed != from.prompt_tokens - 1 ||
      space != from.space) {
    fail(
        ErrorKind::internal,
        "fork",
        "of a row with {} of {} prompt tokens computed and {} of its answer",
        from.computed,
        from.prompt_tokens,
        from.chosen);
  }
  return with_mlx_errors("fork", [&] {
    auto other = std::make_shared<RowState>();
    other->settings = settings;
    set_xtc_special_tokens(other->settings, *text_);
    other->adapters = stack;
    other->space = space;
    other->caches = from.computed == 0 ? make_cache(stack.get())
                                       : cache::shared_copies(from.caches);
    other->tokens = from.tokens;
    other->prompt_tokens = from.prompt_tokens;
    other->computed = from.computed;
    return std::make_unique<ModelRow>(std::move(other));
  });
}

std::unique_ptr<Step> ModelRunner::begin(std::span<Row* const> rows) {
  std::vector<std::shared_ptr<RowState>> states;
  for (Row* row : rows) {
    const auto& state = state_of(*row);
    if (state->computed != state->length() - 1) {
      fail(
          ErrorKind::internal,
          "decode",
          "a row with {} tokens of which {} are computed",
          state->length(),
          state->computed);
    }
    states.push_back(state);
  }
  return with_mlx_errors("decode", [&] {
    // It waits for what is enqueued, which must not be this step.
    if (++steps_ % kClearInterval == 0) {
      clear_cache();
    }
    mx::array fed = fed_tokens(states);
    mx::array logits = logits_of(fed, states);
    mx::async_eval(logits);
    for (const auto& state : states) {
      ++state->computed;
    }
    return std::make_unique<ModelStep>(std::make_shared<StepState>(
        StepState{std::move(states), fed, logits, std::nullopt}));
  });
}

void ModelRunner::choose(Step& step, std::span<const TokenMask> masks) {
  StepState& state = *state_of(step);
  if (state.chosen) {
    fail(ErrorKind::internal, "decode", "a step chooses once");
  }
  with_mlx_errors("decode", [&] {
    std::vector<RowChoice> rows;
    for (const auto& row : state.rows) {
      const RowSettings& settings = row->settings;
      RowChoice choice{
          &settings.sampling,
          {settings.seed, row->chosen},
          {},
          settings.top_logprobs};
      generate::LogitsProcessors processors(settings.sampling);
      if (processors.needs_tokens()) {
        choice.recent = recent_tokens(*row, processors.window());
      }
      rows.push_back(std::move(choice));
    }
    state.chosen =
        choose_tokens(state.logits, state.fed, rows, masks, kernels_);
    mx::async_eval(state.chosen->arrays());
    for (size_t i = 0; i < state.rows.size(); ++i) {
      state.rows[i]->unread.push_back(
          {state.chosen->tokens, static_cast<int>(i)});
      ++state.rows[i]->chosen;
    }
  });
}

std::vector<Chosen> ModelRunner::read(Step& step) {
  StepState& state = *state_of(step);
  if (!state.chosen) {
    fail(ErrorKind::internal, "decode", "nothing was chosen yet");
  }
  return with_mlx_errors("decode", [&] {
    std::vector<Chosen> result = read_chosen(*state.chosen, state.rows);
    for (size_t i = 0; i < result.size(); ++i) {
      RowState& row = *state.rows[i];
      if (row.unread.empty() ||
          row.unread.front().tokens.id() != state.chosen->tokens.id()) {
        fail(ErrorKind::internal, "decode", "steps are read in their order");
      }
      row.unread.erase(row.unread.begin());
      row.tokens.push_back(result[i].token.token);
    }
    return result;
  });
}

std::vector<AnswerToken> ModelRunner::prompt_logprobs(
    std::span<const int32_t> prompt,
    int top,
    const std::string& adapter) {
  auto stack = adapters_.find(adapter);
  check_prompt(prompt);
  return with_mlx_errors("prompt logprobs", [&] {
    auto adapters = adapters::adapters_of_rows({stack});
    nn::AdapterScope scope(stack ? adapters.get() : nullptr);
    return engine::prompt_logprobs(
        *model_,
        make_cache(stack.get()),
        prompt,
        top,
        kernels_);
  });
}

void ModelRunner::close(
    std::unique_ptr<Row> row,
    std::span<const int32_t> tokens) {
  const RowState& state = *state_of(*row);
  auto known = static_cast<int>(tokens.size());
  int keep = std::min(state.computed, known);
  if (keep == 0 || !options_.prefixes) {
    return;
  }
  // A step may be on its way that fed a token more than was read.
  if (state.computed - keep > cache::droppable(state.caches)) {
    return;
  }
  with_mlx_errors("close", [&] {
    remember(
        state.space,
        tokens.first(static_cast<size_t>(keep)),
        state.caches);
  });
}

}  // namespace mlxx::engine
