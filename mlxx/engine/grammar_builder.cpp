#include "mlxx/engine/grammar_builder.h"

#include <utility>

#include "mlxx/base/error.h"

namespace mlxx::engine {

GrammarBuilder::GrammarBuilder(std::function<void()> wake)
    : wake_(std::move(wake)) {}

GrammarBuilder::~GrammarBuilder() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  something_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::future<BuiltGrammar> GrammarBuilder::build(
    std::shared_ptr<const ModelText> text,
    const Constraint& constraint) {
  std::packaged_task<BuiltGrammar()> task([text = std::move(text), constraint] {
    if (text->eos_ids.empty()) {
      fail(
          ErrorKind::unsupported,
          "constraint",
          "the model names no token that ends an answer, so that none can "
          "follow a grammar");
    }
    auto tokens = text->grammar->get(*text);
    return BuiltGrammar{
        text::GrammarMatcher(tokens, constraint.kind, constraint.grammar),
        tokens->mask_words()};
  });
  auto future = task.get_future();
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
    }
  }
  something_.notify_one();
  return future;
}

void GrammarBuilder::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    something_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (stopping_) {
      return;
    }
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    // What it holds of the model goes before anybody knows.
    task = {};
    wake_();
    lock.lock();
  }
}

}  // namespace mlxx::engine
