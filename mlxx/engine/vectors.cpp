#include "mlxx/engine/vectors.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <memory>
#include <utility>

#include "mlxx/base/error.h"
#include "mlxx/engine/engine.h"

namespace mlxx::engine {

namespace {

// Inputs [begin, end) of a request, none of them copied before its turn.
EmbedRequest part_of(const EmbedRequest& whole, size_t begin, size_t end) {
  EmbedRequest part = {
      .model = whole.model,
      .texts = {},
      .token_lists = {},
      .dimensions = whole.dimensions,
      .normalize = whole.normalize,
      .prompt = whole.prompt,
      .prompt_name = whole.prompt_name,
      .max_tokens = whole.max_tokens,
      .is_wanted = nullptr};
  const auto from = static_cast<std::ptrdiff_t>(begin);
  const auto to = static_cast<std::ptrdiff_t>(end);
  if (whole.texts.empty()) {
    part.token_lists.assign(
        whole.token_lists.begin() + from,
        whole.token_lists.begin() + to);
  } else {
    part.texts.assign(whole.texts.begin() + from, whole.texts.begin() + to);
  }
  return part;
}

RerankRequest part_of(const RerankRequest& whole, size_t begin, size_t end) {
  const auto from = whole.documents.begin();
  return {
      .model = whole.model,
      .query = whole.query,
      .documents =
          {from + static_cast<std::ptrdiff_t>(begin),
           from + static_cast<std::ptrdiff_t>(end)},
      .raw_scores = whole.raw_scores,
      .max_tokens = whole.max_tokens,
      .is_wanted = nullptr};
}

size_t inputs_of(const EmbedRequest& request) {
  return request.texts.size() + request.token_lists.size();
}
size_t inputs_of(const RerankRequest& request) {
  return request.documents.size();
}

size_t bytes_of(const EmbedRequest& request, size_t index) {
  return request.texts.empty()
      ? request.token_lists[index].size() * sizeof(int32_t)
      : request.texts[index].size();
}
size_t bytes_of(const RerankRequest& request, size_t index) {
  return request.query.size() + request.documents[index].size();
}

EmbedAnswer compute(VectorSource& source, const EmbedRequest& request) {
  return source.embed(request);
}
RerankAnswer compute(VectorSource& source, const RerankRequest& request) {
  return source.rerank(request);
}

template <typename T>
void append(std::vector<T>& to, std::vector<T>& from) {
  std::ranges::move(from, std::back_inserter(to));
}
void add(EmbedAnswer& answer, EmbedAnswer part) {
  append(answer.vectors, part.vectors);
  append(answer.dropped, part.dropped);
  answer.tokens += part.tokens;
}
void add(RerankAnswer& answer, RerankAnswer part) {
  append(answer.scores, part.scores);
  append(answer.dropped, part.dropped);
  answer.tokens += part.tokens;
}

void check_kind(const EmbedRequest& request) {
  if (!request.texts.empty() && !request.token_lists.empty()) {
    fail(
        ErrorKind::invalid_request,
        "input",
        "must be texts or token ids, not both");
  }
}
void check_kind(const RerankRequest&) {}

template <typename Request>
void check(const Request& request, const VectorLimits& limits) {
  check_kind(request);
  const size_t inputs = inputs_of(request);
  if (inputs == 0) {
    fail(ErrorKind::invalid_request, "input", "is empty");
  }
  if (inputs > limits.max_inputs) {
    fail(
        ErrorKind::invalid_request,
        "input",
        "has {} texts, at most {} are taken at once",
        inputs,
        limits.max_inputs);
  }
  size_t bytes = 0;
  for (size_t i = 0; i < inputs; ++i) {
    bytes += bytes_of(request, i);
  }
  if (bytes > limits.max_bytes) {
    fail(
        ErrorKind::invalid_request,
        "input",
        "has {} bytes, at most {} are taken at once",
        bytes,
        limits.max_bytes);
  }
}

// What is being caught; an error that names a text by its number in a part
// gets that in the whole.
std::exception_ptr caught_in_part(const Error& error, size_t first) {
  constexpr std::string_view kPlace = "[text ";
  std::string_view what = error.what();
  if (first == 0 || !what.starts_with(kPlace)) {
    return std::current_exception();
  }
  what.remove_prefix(kPlace.size());
  size_t number = 0;
  auto [end, problem] =
      std::from_chars(what.data(), what.data() + what.size(), number);
  if (problem != std::errc()) {
    return std::current_exception();
  }
  what.remove_prefix(static_cast<size_t>(end - what.data()));
  return std::make_exception_ptr(
      Error(error.kind(), fmt::format("{}{}{}", kPlace, number + first, what)));
}

// One request, which goes to the engine part by part.
template <typename Request, typename Answer>
class Job {
 public:
  using Sink = std::function<void(Answer, std::exception_ptr)>;

  Job(Engine& engine, Request request, Sink sink, const VectorLimits& limits)
      : engine_(engine),
        request_(std::move(request)),
        sink_(std::move(sink)),
        limits_(limits) {}
  // An engine that ends drops what it was given.
  ~Job() {
    if (sink_) {
      finish(std::make_exception_ptr(
          Error(ErrorKind::cancelled, "[engine] is stopping")));
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  static void post(std::shared_ptr<Job> job) {
    Engine& engine = job->engine_;
    engine.post([job = std::move(job)](ModelSource& source) {
      if (job->run(source)) {
        post(job);
      }
    });
  }

 private:
  // Whether there is more to do.
  bool run(ModelSource& source) {
    try {
      if (request_.is_wanted && !request_.is_wanted()) {
        fail(ErrorKind::cancelled, "engine", "the client went away");
      }
      VectorSource* vectors = source.vectors();
      if (!vectors) {
        fail(
            ErrorKind::unsupported,
            "model",
            "no model here makes vectors or scores");
      }
      const size_t end = end_of_part();
      add(answer_, compute(*vectors, part_of(request_, done_, end)));
      done_ = end;
      if (done_ < inputs_of(request_)) {
        return true;
      }
      finish(nullptr);
    } catch (const Error& error) {
      finish(caught_in_part(error, done_));
    } catch (...) {
      finish(std::current_exception());
    }
    return false;
  }

  size_t end_of_part() const {
    const size_t most =
        std::min(inputs_of(request_), done_ + limits_.inputs_at_once);
    size_t end = done_ + 1;
    size_t bytes = bytes_of(request_, done_);
    while (end < most &&
           bytes + bytes_of(request_, end) <= limits_.bytes_at_once) {
      bytes += bytes_of(request_, end);
      ++end;
    }
    return end;
  }

  void finish(std::exception_ptr problem) {
    Sink sink = std::exchange(sink_, nullptr);
    sink(problem ? Answer{} : std::move(answer_), problem);
  }

  Engine& engine_;
  const Request request_;
  Sink sink_;  // null once it was called
  const VectorLimits limits_;
  size_t done_ = 0;  // inputs
  Answer answer_;
};

template <typename Answer, typename Request>
void start(
    Engine& engine,
    Request request,
    std::function<void(Answer, std::exception_ptr)> sink,
    const VectorLimits& limits) {
  check(request, limits);
  using ThisJob = Job<Request, Answer>;
  ThisJob::post(std::make_shared<ThisJob>(
      engine,
      std::move(request),
      std::move(sink),
      limits));
}

template <typename Answer, typename Request>
Answer wait(Engine& engine, Request request, const VectorLimits& limits) {
  auto promise = std::make_shared<std::promise<Answer>>();
  auto future = promise->get_future();
  start<Answer>(
      engine,
      std::move(request),
      std::function([promise](Answer answer, std::exception_ptr problem) {
        if (problem) {
          promise->set_exception(problem);
        } else {
          promise->set_value(std::move(answer));
        }
      }),
      limits);
  return future.get();
}

}  // namespace

void embed(
    Engine& engine,
    EmbedRequest request,
    EmbedSink sink,
    const VectorLimits& limits) {
  start<EmbedAnswer>(engine, std::move(request), std::move(sink), limits);
}

void rerank(
    Engine& engine,
    RerankRequest request,
    RerankSink sink,
    const VectorLimits& limits) {
  start<RerankAnswer>(engine, std::move(request), std::move(sink), limits);
}

EmbedAnswer
embed_now(Engine& engine, EmbedRequest request, const VectorLimits& limits) {
  return wait<EmbedAnswer>(engine, std::move(request), limits);
}

RerankAnswer
rerank_now(Engine& engine, RerankRequest request, const VectorLimits& limits) {
  return wait<RerankAnswer>(engine, std::move(request), limits);
}

}  // namespace mlxx::engine
