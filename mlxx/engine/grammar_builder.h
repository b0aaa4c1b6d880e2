#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "mlxx/engine/model_text.h"
#include "mlxx/engine/request.h"
#include "mlxx/text/grammar.h"

namespace mlxx::engine {

struct BuiltGrammar {
  text::GrammarMatcher matcher;
  size_t mask_words = 0;  // of its masks
};

// Makes the grammars of requests on a thread of its own, so that a vocabulary
// of 150k tokens (0.5 s, once per model) or a schema of hostile size does not
// hold up the steps of everybody else.
class GrammarBuilder {
 public:
  // `wake` is called on that thread when a grammar is done.
  explicit GrammarBuilder(std::function<void()> wake);
  // Waits for the grammar that is being made; others are dropped.
  ~GrammarBuilder();
  GrammarBuilder(const GrammarBuilder&) = delete;
  GrammarBuilder& operator=(const GrammarBuilder&) = delete;

  // Errors come with the future: invalid_request for a grammar that does not
  // parse, unsupported for a model without an end of answers.
  std::future<BuiltGrammar> build(
      std::shared_ptr<const ModelText> text,
      const Constraint& constraint);

 private:
  void run();

  std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable something_;
  std::deque<std::packaged_task<BuiltGrammar()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // from the first grammar on
};

}  // namespace mlxx::engine
