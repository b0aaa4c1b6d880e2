#include "mlxx/hub/retry.h"

#include <algorithm>
#include <thread>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"

namespace mlxx::hub {

namespace {

// A server that cuts every connection after a little is left alone at last.
constexpr int kMaxTotalFailures = 1000;
constexpr int kMaxUnreachable = 2;
constexpr auto kSlice = std::chrono::milliseconds(100);

std::string describe(const HttpResult& result) {
  if (result.end != HttpEnd::whole) {
    return result.trouble;
  }
  return fmt::format("the server answers with status {}", result.head.status);
}

}  // namespace

bool is_temporary(int status) {
  return status == 408 || status == 425 || status == 429 ||
      (status >= 500 && status <= 599 && status != 501 && status != 505);
}

Retry::Retry(const HubSettings& settings, std::function<void()> on_tick)
    : settings_(&settings), on_tick_(std::move(on_tick)) {}

void Retry::wait_or_fail(
    const HttpResult& result,
    const std::string& url,
    bool progressed) {
  failures_ = progressed ? 1 : failures_ + 1;
  ++total_failures_;
  // No network, or a misspelt host: quick to say, unlikely to change.
  int limit = result.end == HttpEnd::unreachable
      ? std::min(kMaxUnreachable, settings_->max_attempts)
      : settings_->max_attempts;
  auto asked = result.head.retry_after;
  bool asks_too_much = asked && *asked > settings_->longest_wait;
  if (failures_ >= limit || total_failures_ >= kMaxTotalFailures ||
      asks_too_much) {
    fail(
        ErrorKind::internal,
        url,
        "{} (after {} attempt{}){}",
        describe(result),
        total_failures_,
        total_failures_ == 1 ? "" : "s",
        asks_too_much ? fmt::format("; it asks to wait {} s", asked->count())
                      : "");
  }
  constexpr int kMaxDoublings = 5;
  std::chrono::milliseconds pause =
      settings_->first_wait * (1 << std::min(failures_ - 1, kMaxDoublings));
  if (asked) {
    pause = *asked;
  }
  log_info(
      "[{}] {}; trying again in {} ms",
      url,
      describe(result),
      pause.count());
  sleep(pause);
}

void Retry::sleep(std::chrono::milliseconds duration) const {
  auto end = std::chrono::steady_clock::now() + duration;
  while (true) {
    if (on_tick_) {
      on_tick_();
    }
    auto left = end - std::chrono::steady_clock::now();
    if (left <= std::chrono::steady_clock::duration::zero()) {
      return;
    }
    std::this_thread::sleep_for(
        std::min<std::chrono::steady_clock::duration>(left, kSlice));
  }
}

}  // namespace mlxx::hub
