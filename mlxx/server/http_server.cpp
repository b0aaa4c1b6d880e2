#include "mlxx/server/http_server.h"

#include <algorithm>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "mlxx/base/error.h"
#include "mlxx/server/connection.h"
#include "mlxx/server/connection_list.h"

namespace mlxx::server {

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
using Tcp = asio::ip::tcp;
using Local = asio::local::stream_protocol;

// A socket file that nobody listens on any more is in the way of the next
// start; anything else of that name is not ours to remove.
void remove_stale_socket(const std::string& path) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) {
    return;
  }
  if (!S_ISSOCK(status.st_mode)) {
    fail(ErrorKind::invalid_request, path, "exists and is no socket");
  }
  asio::io_context io;
  Local::socket probe(io);
  ErrorCode error;
  probe.connect(Local::endpoint(path), error);
  if (!error) {
    fail(ErrorKind::invalid_request, path, "another server listens there");
  }
  unlink(path.c_str());
}

template <typename Acceptor>
void close_on_its_strand(Acceptor& acceptor) {
  std::promise<void> closed;
  asio::post(acceptor.get_executor(), [&] {
    ErrorCode ignored;
    acceptor.close(ignored);
    closed.set_value();
  });
  closed.get_future().wait();
}

}  // namespace

struct HttpServer::Impl {
  HttpOptions options;
  ConnectionContext context;
  ConnectionList list;
  std::optional<asio::ssl::context> tls;
  asio::io_context io;
  asio::thread_pool workers;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::vector<Tcp::acceptor> tcp;
  std::vector<Local::acceptor> local;
  std::vector<std::thread> threads;
  std::vector<std::string> addresses;
  int port = 0;

  Impl(const HttpOptions& given, HttpHandler& handler)
      : options(given),
        list(options.limits),
        io(std::max(1, options.io_threads)),
        workers(static_cast<size_t>(std::max(1, options.worker_threads))),
        work(asio::make_work_guard(io)) {
    context.limits = &options.limits;
    context.handler = &handler;
    context.workers = &workers;
  }

  void listen_tcp();
  void listen_unix();
  template <typename Acceptor>
  asio::awaitable<void> accept(Acceptor& acceptor);
  void take(std::unique_ptr<Transport> transport);
};

void HttpServer::Impl::listen_tcp() {
  if (options.port < 0) {
    return;
  }
  ErrorCode error;
  Tcp::resolver resolver(io);
  std::string name = options.host;
  if (name.starts_with('[') && name.ends_with(']')) {
    name = name.substr(1, name.size() - 2);
  }
  auto found = resolver.resolve(
      name,
      std::to_string(options.port),
      Tcp::resolver::passive,
      error);
  if (error || found.empty()) {
    fail(
        ErrorKind::invalid_request,
        "--host",
        "'{}' is no address of this machine, {}",
        options.host,
        error.message());
  }
  auto endpoint = found.begin()->endpoint();
  Tcp::acceptor acceptor(asio::make_strand(io));
  acceptor.open(endpoint.protocol(), error);
  if (!error) {
    acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
    acceptor.bind(endpoint, error);
  }
  if (!error) {
    acceptor.listen(1024, error);
  }
  if (error) {
    fail(
        ErrorKind::invalid_request,
        "--port",
        "cannot listen on {} port {}, {}",
        options.host,
        options.port,
        error.message());
  }
  port = acceptor.local_endpoint().port();
  auto address = endpoint.address();
  std::string host = address.to_string();
  if (address.is_v6()) {
    host = fmt::format("[{}]", host);
  }
  addresses.push_back(
      fmt::format("{}://{}:{}", tls ? "https" : "http", host, port));
  tcp.push_back(std::move(acceptor));
}

void HttpServer::Impl::listen_unix() {
  const auto& path = options.unix_socket;
  if (path.empty()) {
    return;
  }
  remove_stale_socket(path);
  ErrorCode error;
  Local::acceptor acceptor(asio::make_strand(io));
  try {
    Local::endpoint endpoint(path);
    acceptor.open(endpoint.protocol(), error);
    // Its owner's only, from the first moment on.
    auto mask = umask(0177);
    acceptor.bind(endpoint, error);
    umask(mask);
  } catch (const boost::system::system_error& too_long) {
    error = too_long.code();
  }
  if (!error) {
    acceptor.listen(1024, error);
  }
  if (error) {
    fail(
        ErrorKind::invalid_request,
        "--unix-socket",
        "cannot listen on '{}', {}",
        path,
        error.message());
  }
  addresses.push_back(fmt::format("unix:{}", path));
  local.push_back(std::move(acceptor));
}

void HttpServer::Impl::take(std::unique_ptr<Transport> transport) {
  std::string peer = transport->peer();
  auto room = list.enter(peer);
  if (room == ConnectionList::Room::full) {
    transport->close();
    return;
  }
  auto executor = transport->executor();
  auto connection = std::make_shared<Connection>(
      std::move(transport),
      context,
      room == ConnectionList::Room::reserved);
  list.add(peer, room, connection);
  asio::co_spawn(
      executor,
      [connection] { return connection->run(); },
      [this, peer, room, connection](std::exception_ptr) {
        list.leave(peer, room, connection);
      });
}

template <typename Acceptor>
asio::awaitable<void> HttpServer::Impl::accept(Acceptor& acceptor) {
  for (;;) {
    auto strand = asio::make_strand(io);
    auto [error, socket] = co_await acceptor.async_accept(strand, kAwait);
    if (!acceptor.is_open() || error == asio::error::operation_aborted) {
      co_return;
    }
    if (error) {
      // No descriptors left, most likely: some will be closed.
      asio::steady_timer pause(
          acceptor.get_executor(),
          std::chrono::milliseconds(50));
      co_await pause.async_wait(kAwait);
      continue;
    }
    if constexpr (std::is_same_v<Acceptor, Tcp::acceptor>) {
      Tcp::socket plain(std::move(socket));
      take(
          tls ? make_transport(std::move(plain), *tls)
              : make_transport(std::move(plain)));
    } else {
      take(make_transport(Local::socket(std::move(socket))));
    }
  }
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(options, handler)) {
  auto& impl = *impl_;
  if (options.tls_certificate_file.empty() != options.tls_key_file.empty()) {
    fail(
        ErrorKind::invalid_request,
        "--ssl-certfile",
        "TLS needs both a certificate and its key");
  }
  if (!options.tls_key_file.empty()) {
    impl.tls.emplace(
        make_tls_context(options.tls_certificate_file, options.tls_key_file));
  }
  impl.listen_tcp();
  impl.listen_unix();
  if (impl.addresses.empty()) {
    fail(ErrorKind::invalid_request, "server", "there is nothing to listen on");
  }
  for (auto& acceptor : impl.tcp) {
    asio::co_spawn(
        acceptor.get_executor(),
        impl.accept(acceptor),
        asio::detached);
  }
  for (auto& acceptor : impl.local) {
    asio::co_spawn(
        acceptor.get_executor(),
        impl.accept(acceptor),
        asio::detached);
  }
  for (int i = 0; i < std::max(1, options.io_threads); ++i) {
    impl.threads.emplace_back([&impl] { impl.io.run(); });
  }
}

HttpServer::~HttpServer() {
  close(std::chrono::milliseconds(0));
  auto& impl = *impl_;
  impl.workers.join();
  impl.work.reset();
  impl.io.stop();
  for (auto& thread : impl.threads) {
    thread.join();
  }
  if (!impl.local.empty()) {
    unlink(impl.options.unix_socket.c_str());
  }
}

int HttpServer::port() const {
  return impl_->port;
}

std::vector<std::string> HttpServer::addresses() const {
  return impl_->addresses;
}

size_t HttpServer::connections() const {
  return impl_->list.size();
}

void HttpServer::stop_accepting() {
  auto& impl = *impl_;
  impl.context.is_stopping = true;
  for (auto& acceptor : impl.tcp) {
    close_on_its_strand(acceptor);
  }
  for (auto& acceptor : impl.local) {
    close_on_its_strand(acceptor);
  }
  impl.list.close_idle();
}

void HttpServer::close(std::chrono::milliseconds patience) {
  auto& impl = *impl_;
  stop_accepting();
  if (!impl.list.wait_until_empty(patience)) {
    impl.list.close_all();
    impl.list.wait_until_empty(std::chrono::seconds(5));
  }
}

}  // namespace mlxx::server
