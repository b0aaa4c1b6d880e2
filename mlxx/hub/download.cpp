#include "mlxx/hub/download.h"

#include <charconv>
#include <optional>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/hub/hub_api.h"
#include "mlxx/hub/part_file.h"
#include "mlxx/hub/retry.h"

namespace mlxx::hub {

namespace {

// "bytes 100-199/200" -> 100 and 200.
struct ContentRange {
  uint64_t start;
  std::optional<uint64_t> total;  // absent: "*"
};

std::optional<uint64_t> read_number(std::string_view& text) {
  uint64_t number = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) {
    return std::nullopt;
  }
  text.remove_prefix(kUnit.size());
  auto start = read_number(text);
  size_t slash = text.find('/');
  if (!start || slash == std::string_view::npos) {
    return std::nullopt;
  }
  text.remove_prefix(slash + 1);
  return ContentRange{*start, read_number(text)};
}

// One file's download from first attempt to final name.
class Transfer {
 public:
  Transfer(
      HttpClient& client,
      const HubSettings& settings,
      const Download& download,
      const DownloadEvents& events)
      : client_(client),
        settings_(settings),
        download_(download),
        events_(events),
        part_(download.target, download.size, download.hash, events.on_bytes) {}

  void run() {
    bool resumed = part_.written() > 0;
    part_.check_space();
    fetch();
    if (part_.finish()) {
      return;
    }
    if (!resumed) {
      fail_with_other_content();
    }
    log_warning(
        "[{}] what an earlier attempt left of {} is damaged; getting it anew",
        download_.name.text(),
        download_.file);
    throw StartAnew{};
  }

  struct StartAnew {};

 private:
  void fetch() {
    Retry retry(settings_, events_.on_tick);
    while (!part_.is_whole()) {
      uint64_t before = part_.written();
      HttpResult result = attempt();
      int status = result.head.status;
      bool is_final = result.end == HttpEnd::whole && !is_temporary(status);
      if (is_final && status == 416 && before > 0) {
        // Nothing is left after our part: it cannot be one of this file.
        part_.start_over();
      } else if (is_final && status != 200 && status != 206) {
        fail_with_status(result.head, download_.name, settings_);
      }
      if (part_.is_whole()) {
        return;
      }
      if (is_final && status != 416) {
        result.trouble = "the connection ended before the file did";
        result.end = HttpEnd::cut;
      }
      retry.wait_or_fail(result, download_.url, part_.written() > before);
    }
  }

  HttpResult attempt() {
    HttpRequest request{
        .url = download_.url,
        .bearer_token = settings_.token,
        .range_start = part_.written()};
    HttpHandlers handlers;
    handlers.on_tick = events_.on_tick;
    handlers.on_head = [&](const HttpHead& head) { accept(head, request); };
    handlers.on_body = [&](std::span<const std::byte> bytes) {
      part_.append(bytes);
      if (events_.on_bytes) {
        events_.on_bytes(part_.written());
      }
    };
    return client_.send(request, handlers);
  }

  // Before the first byte of the body.
  void accept(const HttpHead& head, const HttpRequest& request) {
    if (head.status == 206) {
      auto range = parse_content_range(head.header("content-range"));
      if (!range || range->start != request.range_start) {
        fail(
            ErrorKind::internal,
            head.url,
            "was asked for the bytes from {}, and answers with '{}'",
            request.range_start,
            head.header("content-range"));
      }
      if (range->total) {
        check_size(head, *range->total);
      }
    } else if (head.status == 200) {
      // The server knows no ranges, and sends everything.
      if (part_.written() > 0) {
        part_.start_over();
      }
      std::string text = head.header("content-length");
      std::string_view digits = text;
      if (auto length = read_number(digits)) {
        check_size(head, *length);
      }
    }
  }

  void check_size(const HttpHead& head, uint64_t size) const {
    if (size == download_.size) {
      return;
    }
    bool is_page = head.header("content-type").starts_with("text/html");
    fail(
        ErrorKind::bad_file,
        head.url,
        "has {} bytes where {} has {}{}",
        size,
        download_.file,
        download_.size,
        is_page ? "; it is a web page, perhaps the log-in of a proxy" : "");
  }

  [[noreturn]] void fail_with_other_content() const {
    fail(
        ErrorKind::bad_file,
        download_.name.text(),
        "{} has another content than the hub says: its {} is {}, expected {}",
        download_.file,
        download_.hash.kind == ContentHash::Kind::sha256 ? "sha256"
                                                         : "Git hash",
        part_.found_hash(),
        download_.hash.hex);
  }

  HttpClient& client_;
  const HubSettings& settings_;
  const Download& download_;
  const DownloadEvents& events_;
  PartFile part_;
};

}  // namespace

void download_file(
    HttpClient& client,
    const HubSettings& settings,
    const Download& download,
    const DownloadEvents& events) {
  try {
    Transfer(client, settings, download, events).run();
  } catch (const Transfer::StartAnew&) {
    // The damaged part is gone, so this one starts at the first byte.
    Transfer(client, settings, download, events).run();
  }
}

}  // namespace mlxx::hub
