#include "mlxx/train/objective.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "mlxx/base/error.h"

namespace mlxx::train {

namespace {

mx::array number(double value) {
  return mx::array(static_cast<float>(value));
}

// Tokens of an answer: of a row, or of a segment of the packed one.
struct Answer {
  int row = 0;
  int begin = 0;
  int end = 0;
  int64_t tokens = 0;
};

Answer answer_of(const data::Batch& batch, int index) {
  const bool packed = !batch.segments.empty();
  const size_t most = packed ? batch.segments.size() : batch.rows;
  if (index < 0 || static_cast<size_t>(index) >= most) {
    fail(
        ErrorKind::internal,
        "train",
        "pair names answer {} of {}",
        index,
        most);
  }
  Answer answer;
  if (packed) {
    answer.begin = batch.segments[index].begin;
    answer.end = batch.segments[index].end;
  } else {
    answer.row = index;
    answer.end = batch.length;
  }
  const size_t start = static_cast<size_t>(answer.row) * batch.length;
  for (int i = answer.begin; i < answer.end; ++i) {
    answer.tokens += batch.targets[start + i];
  }
  return answer;
}

struct Answers {
  Answer chosen;
  Answer rejected;

  bool count() const {
    return chosen.tokens > 0 && rejected.tokens > 0;
  }
};

std::vector<Answers> answers_of(const data::Batch& batch) {
  if (batch.pairs.empty()) {
    fail(
        ErrorKind::invalid_request,
        "train",
        "the method compares answers, and the batch has no pairs of them");
  }
  std::vector<Answers> answers;
  for (const auto& pair : batch.pairs) {
    answers.push_back(
        {answer_of(batch, pair.chosen), answer_of(batch, pair.rejected)});
  }
  return answers;
}

mx::array sums_of(
    const std::vector<Answers>& answers,
    const mx::array& scores) {
  std::vector<mx::array> sums;
  const auto add = [&](const Answer& answer) {
    sums.push_back(mx::sum(mx::slice(
        scores,
        {answer.row, answer.begin},
        {answer.row + 1, answer.end})));
  };
  for (const auto& pair : answers) {
    add(pair.chosen);
    add(pair.rejected);
  }
  return mx::reshape(mx::stack(sums), {static_cast<int>(answers.size()), 2});
}

// [pairs] of what `value` gives for each.
mx::array column(
    const std::vector<Answers>& answers,
    const std::function<double(const Answers&)>& value) {
  std::vector<float> numbers;
  for (const auto& pair : answers) {
    numbers.push_back(static_cast<float>(value(pair)));
  }
  return mx::array(
      numbers.begin(),
      {static_cast<int>(numbers.size())},
      mx::float32);
}

mx::array of_column(const mx::array& pairs, int index) {
  return mx::reshape(
      mx::slice(pairs, {0, index}, {pairs.shape(0), index + 1}),
      {pairs.shape(0)});
}

// -log(sigmoid(x)) without overflow.
mx::array softplus_of_minus(const mx::array& x) {
  return mx::logaddexp(number(0), mx::negative(x));
}

mx::array is_above(const mx::array& a, const mx::array& b) {
  return mx::astype(mx::greater(a, b), mx::float32);
}

// Adds up pairs with their weights: 1 / whole, or 0 for one without tokens.
class WeightedSums {
 public:
  WeightedSums(const std::vector<Answers>& answers, int64_t whole)
      : counts_(column(
            answers,
            [](const Answers& pair) { return pair.count() ? 1 : 0; })),
        weight_(number(1.0 / static_cast<double>(whole))) {}

  mx::array of(const mx::array& values) const {
    return mx::multiply(
        mx::sum(mx::where(mx::greater(counts_, number(0)), values, number(0))),
        weight_);
  }
  mx::array count() const {
    return mx::multiply(mx::sum(counts_), weight_);
  }

 private:
  mx::array counts_;
  mx::array weight_;
};

LossSums dpo_loss(
    const std::vector<Answers>& answers,
    int64_t whole,
    double beta,
    const mx::array& reference,
    const mx::array& scores) {
  // Rewards [pairs, 2]: how much likelier an answer has become.
  const mx::array rewards = mx::multiply(
      number(beta),
      mx::subtract(sums_of(answers, scores), reference));
  const mx::array chosen = of_column(rewards, 0);
  const mx::array rejected = of_column(rewards, 1);
  const mx::array margin = mx::subtract(chosen, rejected);
  const WeightedSums sums(answers, whole);
  return {
      sums.of(softplus_of_minus(margin)),
      sums.count(),
      {{"accuracy", sums.of(is_above(chosen, rejected))},
       {"margin", sums.of(margin)},
       {"chosen_reward", sums.of(chosen)},
       {"rejected_reward", sums.of(rejected)}}};
}

LossSums orpo_loss(
    const std::vector<Answers>& answers,
    int64_t whole,
    double lambda,
    const mx::array& scores) {
  const mx::array sums_of_answers = sums_of(answers, scores);
  const auto mean = [&](int index) {
    return mx::divide(
        of_column(sums_of_answers, index),
        column(answers, [&](const Answers& pair) {
          const auto& answer = index == 0 ? pair.chosen : pair.rejected;
          return static_cast<double>(std::max<int64_t>(answer.tokens, 1));
        }));
  };
  const mx::array chosen = mean(0);
  const mx::array rejected = mean(1);
  // log(odds(chosen) / odds(rejected)), odds(p) = p / (1 - p).
  const mx::array log_odds = mx::subtract(
      mx::subtract(chosen, rejected),
      mx::subtract(log1mexp(chosen), log1mexp(rejected)));
  const mx::array nll = mx::negative(chosen);
  const WeightedSums sums(answers, whole);
  return {
      sums.of(mx::add(
          nll,
          mx::multiply(number(lambda), softplus_of_minus(log_odds)))),
      sums.count(),
      {{"accuracy", sums.of(is_above(chosen, rejected))},
       {"margin", sums.of(mx::subtract(chosen, rejected))},
       {"nll", sums.of(nll)},
       {"log_odds", sums.of(log_odds)}}};
}

LossSums sft_loss(int64_t count, int64_t whole, const mx::array& scores) {
  // The first token of a row is never a target; without it the sum runs over
  // the reference's array, in its order.
  const mx::array targets = scores.shape(1) > 1
      ? mx::contiguous(
            mx::slice(scores, {0, 1}, {scores.shape(0), scores.shape(1)}))
      : scores;
  const auto all = static_cast<double>(whole);
  return {
      mx::divide(mx::negative(mx::sum(targets)), number(all)),
      number(static_cast<double>(count) / all)};
}

}  // namespace

Method method_of(const std::string& name) {
  for (Method method : {Method::sft, Method::dpo, Method::orpo}) {
    if (name == to_string(method)) {
      return method;
    }
  }
  fail(
      ErrorKind::invalid_request,
      "train",
      "method \"{}\" is none of sft, dpo, orpo",
      name);
}

std::string to_string(Method method) {
  switch (method) {
    case Method::sft:
      return "sft";
    case Method::dpo:
      return "dpo";
    case Method::orpo:
      return "orpo";
  }
  return "";
}

Objective::Objective(const ObjectiveOptions& options) : options_(options) {
  for (double value : {options.beta, options.lambda}) {
    if (!std::isfinite(value) || value <= 0) {
      fail(
          ErrorKind::invalid_request,
          "train",
          "beta and lambda are numbers above 0, found {}",
          value);
    }
  }
}

int64_t Objective::count(const data::Batch& batch) const {
  if (options_.method == Method::sft) {
    return batch.target_count();
  }
  int64_t count = 0;
  for (const auto& pair : answers_of(batch)) {
    count += pair.count() ? 1 : 0;
  }
  return count;
}

mx::array Objective::answer_sums(
    const data::Batch& batch,
    const mx::array& scores) const {
  return sums_of(answers_of(batch), scores);
}

ScoreLoss Objective::loss(
    const data::Batch& batch,
    int64_t whole,
    const std::optional<mx::array>& reference) const {
  const int64_t count = this->count(batch);
  if (count == 0 || whole < count) {
    fail(
        ErrorKind::internal,
        "train",
        "a batch that counts {} of {} has no loss",
        count,
        whole);
  }
  if (options_.method == Method::sft) {
    return [count, whole](const mx::array& scores) {
      return sft_loss(count, whole, scores);
    };
  }
  auto answers = answers_of(batch);
  if (options_.method == Method::orpo) {
    return [answers, whole, lambda = options_.lambda](const mx::array& scores) {
      return orpo_loss(answers, whole, lambda, scores);
    };
  }
  if (!reference ||
      reference->shape() != mx::Shape{static_cast<int>(answers.size()), 2}) {
    fail(
        ErrorKind::internal,
        "train",
        "DPO needs the reference's sums of {} pairs",
        answers.size());
  }
  return [answers, whole, beta = options_.beta, reference = *reference](
             const mx::array& scores) {
    return dpo_loss(answers, whole, beta, reference, scores);
  };
}

mx::array log1mexp(const mx::array& given) {
  const mx::array x = mx::minimum(given, number(-1e-7));
  const mx::array middle = number(-std::numbers::ln2);
  // Each form sees only numbers it is good for, or its gradient would be
  // nothing times infinity.
  const mx::array is_near = mx::greater(x, middle);
  const mx::array near = mx::where(is_near, x, middle);
  const mx::array far = mx::where(is_near, middle, x);
  return mx::where(
      is_near,
      mx::log(mx::negative(mx::expm1(near))),
      mx::log1p(mx::negative(mx::exp(far))));
}

}  // namespace mlxx::train
