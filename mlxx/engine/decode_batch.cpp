#include "mlxx/engine/decode_batch.h"

#include <algorithm>
#include <utility>

#include "mlxx/base/error.h"

namespace mlxx::engine {

namespace {

bool goes_on(const Sequence& sequence) {
  return !sequence.answer.finished() &&
      sequence.begun < sequence.answer.max_tokens();
}

}  // namespace

void DecodeBatch::join(Sequence& sequence) {
  sequences_.push_back(&sequence);
}

std::vector<Sequence*> DecodeBatch::rows_to_feed() const {
  std::vector<Sequence*> rows;
  for (Sequence* sequence : sequences_) {
    if (goes_on(*sequence)) {
      rows.push_back(sequence);
    }
  }
  return rows;
}

int DecodeBatch::rows() const {
  return static_cast<int>(
      std::count_if(sequences_.begin(), sequences_.end(), [](Sequence* s) {
        return !s->answer.finished();
      }));
}

bool DecodeBatch::busy() const {
  return in_flight_ || rows() > 0;
}

void DecodeBatch::drop_finished() {
  std::erase_if(sequences_, [](Sequence* sequence) {
    return sequence->answer.finished() && sequence->unread == 0;
  });
}

void DecodeBatch::fail_rows(
    const std::vector<Sequence*>& rows,
    StepListener& listener,
    const std::shared_ptr<const Error>& error,
    Round& round) {
  for (Sequence* row : rows) {
    row->damaged = true;
    if (!row->answer.finished()) {
      // The step after a failed one fails as well; nobody loses by it.
      round.error = error;
      listener.failed(*row, error);
    }
  }
}

DecodeBatch::Round DecodeBatch::advance(
    Runner& runner,
    StepListener& listener) {
  Round round;
  std::vector<Sequence*> rows = rows_to_feed();
  std::optional<InFlight> next;
  std::shared_ptr<const Error> error;
  bool waits = std::any_of(rows.begin(), rows.end(), [](Sequence* row) {
    return row->answer.waits_for(row->unread);
  });
  if (!rows.empty()) {
    try {
      next = begin(runner, rows);
    } catch (...) {
      error = current_error("decode");
    }
  }
  if (next && !waits) {
    error = choose(runner, listener, *next);
  }
  if (in_flight_) {
    read(runner, listener, round);
  }
  if (next && !error && waits) {
    error = choose(runner, listener, *next);
  }
  if (error) {
    if (next) {
      for (Sequence* row : rows) {
        --row->unread;
      }
      next.reset();
    }
    fail_rows(rows, listener, error, round);
  }
  in_flight_ = std::move(next);
  return round;
}

DecodeBatch::Round DecodeBatch::settle(Runner& runner, StepListener& listener) {
  Round round;
  if (in_flight_) {
    read(runner, listener, round);
  }
  return round;
}

DecodeBatch::InFlight DecodeBatch::begin(
    Runner& runner,
    const std::vector<Sequence*>& rows) {
  std::vector<Row*> fed;
  for (Sequence* row : rows) {
    fed.push_back(row->row.get());
  }
  InFlight next{runner.begin(fed), rows};
  for (Sequence* row : rows) {
    ++row->begun;
    ++row->unread;
  }
  return next;
}

std::shared_ptr<const Error>
DecodeBatch::choose(Runner& runner, StepListener& listener, InFlight& next) {
  std::vector<TokenMask> masks;
  bool any = false;
  for (Sequence* row : next.rows) {
    masks.emplace_back();
    if (row->answer.finished()) {
      continue;
    }
    try {
      masks.back() = row->answer.next_mask();
      any = any || !masks.back().empty();
    } catch (...) {
      listener.failed(*row, current_error("constraint"));
    }
  }
  if (!any) {
    masks.clear();
  }
  try {
    runner.choose(*next.step, masks);
    return nullptr;
  } catch (...) {
    return current_error("decode");
  }
}

void DecodeBatch::read(Runner& runner, StepListener& listener, Round& round) {
  InFlight step = std::move(*in_flight_);
  in_flight_.reset();
  for (Sequence* row : step.rows) {
    --row->unread;
  }
  round.read_rows = static_cast<int>(step.rows.size());
  std::vector<Chosen> chosen;
  try {
    chosen = runner.read(*step.step);
    if (chosen.size() != step.rows.size()) {
      fail(
          ErrorKind::internal,
          "decode",
          "{} tokens came for {} rows",
          chosen.size(),
          step.rows.size());
    }
  } catch (...) {
    round.read_rows = 0;
    fail_rows(step.rows, listener, current_error("decode"), round);
    return;
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    Sequence& row = *step.rows[i];
    if (row.answer.finished()) {
      continue;
    }
    if (!chosen[i].finite) {
      row.damaged = true;
      listener.failed(
          row,
          std::make_shared<Error>(
              ErrorKind::internal,
              fmt::format(
                  "[decode] the model's logits are not finite numbers at token "
                  "{} of the answer (an overflow in half precision, or damaged "
                  "weights)",
                  row.answer.tokens().size())));
      continue;
    }
    listener.chosen(row, std::move(chosen[i]));
  }
}

}  // namespace mlxx::engine
